import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dashboard } from '../../../src/dashboard/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import type { HeldError } from '../../../src/errors.ts'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { post, Viewer } from '../../dashboard/viewer.ts'

let servers: Awaited<ReturnType<typeof startRedisNodes>>
let clients: Redis[]
beforeAll(async () => {
  servers = await startRedisNodes(4)
  clients = servers.nodes.map(({ port }) => new Redis({ host: '127.0.0.1', port }).on('error', () => undefined))
})
afterAll(async () => {
  for (const client of clients) client.disconnect()
  await servers.stop()
})

const kinds = [
  { kind: 'one node', engine: (): Engine => redis(clients[3]!), nodes: (): RedisServer[] => servers.nodes.slice(3) },
  {
    kind: 'a quorum',
    engine: (): Engine => redlock(clients.slice(0, 3)),
    nodes: (): RedisServer[] => servers.nodes.slice(0, 3),
  },
]

describe.each(kinds)('on $kind', ({ engine, nodes }) => {
  const locks = (options: Parameters<typeof createLocks>[1] = {}): Locks =>
    createLocks(engine(), { ttl: '60s', ...options })
  const onAll = (...command: string[]): Promise<string[]> => Promise.all(nodes().map((node) => node.cli(...command)))

  test('a lease tells since when it is held, by the time in its token', async () => {
    await using one = locks()
    const beganMs = performance.now()
    const lease = await one.acquire('since', { note: 'invoice 42' })
    await until(async () => ((await one.status('since'))?.holders[0]?.heldMs ?? 0) >= 100, {
      what: 'it is held for 100 ms',
    })
    const status = await one.status('since')
    expect(status).toEqual({
      holders: [
        {
          resource: 'since',
          owner: lease.owner,
          note: 'invoice 42',
          token: lease.token,
          remainingMs: expect.any(Number) as number,
          heldMs: expect.any(Number) as number,
          waiters: 0,
        },
      ],
      waiters: 0,
    })
    // The node's clock is this machine's. A millisecond is lost to rounding.
    expect(status!.holders[0]!.heldMs).toBeLessThanOrEqual(performance.now() - beganMs + 1)
  })

  test('while the counter is ahead of the clock, a lease does not say since when it is held', async () => {
    await using one = locks()
    await (await one.acquire('ahead')).release()
    await onAll('SET', 'ringfence:fence:{ahead}', String((Date.now() + 3_600_000) * 1000))
    const lease = await one.acquire('ahead')
    const status = await one.status('ahead')
    expect(status?.holders).toMatchObject([{ token: lease.token }])
    expect(status?.holders[0]).not.toHaveProperty('heldMs')
  })

  test('a lock of other software has neither our token nor our time, and can be ended', async () => {
    await using one = locks()
    await (await one.acquire('theirs')).release()
    await onAll('SET', 'theirs', 'f81d4fae', 'PX', '60000')
    const status = await one.status('theirs')
    expect(status?.holders).toMatchObject([{ owner: 'f81d4fae', token: 0n }])
    expect(status?.holders[0]).not.toHaveProperty('heldMs')
    expect(await one.forceRelease('theirs', { token: 0n })).toBe(true)
    expect(await one.status('theirs')).toBeNull()
  })

  test('a lock that is only offered has no holder, and says to whom it is offered', async () => {
    await using one = locks()
    const heir = `${'a'.repeat(32)}@heir`
    await onAll('SET', 'offered', `offered:${heir}`, 'PX', '60000')
    expect(await one.status('offered')).toEqual({ holders: [], offeredTo: heir, waiters: 0 })
    const all: unknown[] = []
    for await (const info of one.inspect('offered')) all.push(info)
    expect(all).toMatchObject([{ owner: heir, offered: true, token: 0n }])
    await expect(one.acquire('offered', { wait: 0 })).rejects.toMatchObject({
      code: 'HELD',
      message: "'offered' is offered to heir, the first in line, which has not taken it yet",
      offered: true,
      holder: heir,
    })
    expect(await one.forceRelease('offered', { token: 0n })).toBe(false)
    expect(await onAll('GET', 'offered')).toEqual(nodes().map(() => `offered:${heir}`))
  })

  test('a lock that is only offered is a row of the dashboard, which cannot be released there', async () => {
    await using one = locks()
    await (await one.acquire('offered:2')).release()
    const heir = `${'b'.repeat(32)}@heir`
    await onAll('SET', 'offered:2', `offered:${heir}`, 'PX', '60000')
    await using page = dashboard(one, { auth: () => 'write', every: 100 })
    await using viewer = await Viewer.open(page)
    const row = await viewer.sees('offered:2')
    expect(row).toMatchObject({ owner: heir, label: 'heir', offered: true, token: '0' })
    expect(row.endsInMs).toBeGreaterThan(0)
    const answer = await post(page, '/release', { resource: 'offered:2', token: '0' })
    expect(await answer.json()).toEqual({ ours: false })
    expect(await onAll('GET', 'offered:2')).toEqual(nodes().map(() => `offered:${heir}`))
    await onAll('DEL', 'offered:2')
    await viewer.misses('offered:2')
  })

  test('status shows those who wait, and forceRelease ends the lease of a token and never a later one', async () => {
    await using one = locks()
    await using two = locks({ wait: '50s' })
    const first = await one.acquire('forced')
    const waiting = two.acquire('forced')
    await until(async () => (await one.status('forced'))?.waiters === 1, { what: 'somebody waits' })
    expect((await one.status('forced'))?.line).toHaveLength(1)
    expect(await one.forceRelease('forced', { token: first.token + 1n })).toBe(false)
    expect(await two.forceRelease('forced', { token: first.token })).toBe(true)
    const second = await waiting
    expect(second.token).toBeGreaterThan(first.token)
    expect(await one.forceRelease('forced', { token: first.token })).toBe(false)
    await expect(first.extend()).rejects.toMatchObject({ reason: 'stolen' })
    await second.extend()
    expect(await one.status('nobody')).toBeNull()
  })

  test('a key of an application is told by the names of the resource and of the way out', async () => {
    await using one = locks()
    await onAll('RPUSH', 'users', 'ann')
    const said = /WRONGTYPE: a key of 'users' is not a lock: other software keeps .* the engine's option prefix/
    await expect(one.acquire('users')).rejects.toMatchObject({
      transient: false,
      message: expect.stringMatching(said) as string,
    })
    expect(await onAll('LLEN', 'users')).toEqual(nodes().map(() => '1'))
  })

  test('a counter that other software has written to is said to be none, which trying again does not mend', async () => {
    await using one = locks()
    await onAll('SET', 'ringfence:fence:{counted}', 'abc')
    const said = /the fencing counter of 'counted', 'more' is not a number: other software has written to a key/
    await expect(one.tryAcquire(['counted', 'more'])).rejects.toMatchObject({
      transient: false,
      message: expect.stringMatching(said) as string,
    })
    await onAll('DEL', 'ringfence:fence:{counted}')
    await using lease = (await one.tryAcquire(['counted', 'more']))!
    expect(lease.held).toBe(true)
  })
})

describe('the votes of a quorum', () => {
  test('are in a HeldError and in the events, each node with what it said', async () => {
    const events: LockEvent[] = []
    await using one = createLocks(redlock(clients.slice(0, 3)), {
      ttl: '60s',
      observe: (event) => void events.push(event),
    })
    await using two = createLocks(redlock(clients.slice(0, 3)))
    const labels = servers.nodes.slice(0, 3).map(({ port }) => `127.0.0.1:${port}`)
    const lease = await one.acquire('voted')
    const granted = events.find((event) => event.type === 'granted')?.votes
    expect(granted?.map(({ node }) => node)).toEqual(labels)
    expect(granted!.filter(({ vote }) => vote === 'granted').length).toBeGreaterThanOrEqual(2)
    const error = (await two.acquire('voted', { wait: 0 }).catch((error: unknown) => error)) as HeldError
    const refusing = error.votes!.filter(({ vote, holder }) => vote === 'refused' && holder === lease.owner)
    expect(refusing.length).toBeGreaterThanOrEqual(2)
    expect(JSON.parse(JSON.stringify(error))).toMatchObject({ code: 'HELD', votes: [{ node: labels[0] }, {}, {}] })
    await servers.nodes[0]!.cli('SET', 'split', 'x')
    await servers.nodes[1]!.cli('RPUSH', 'split', 'y')
    expect(await one.tryAcquire('split').catch(() => null)).toBeNull()
    const votes = events.find((event) => event.type === 'refused')?.votes
    expect(votes).toEqual([
      { node: labels[0], vote: 'refused', holder: 'x' },
      { node: labels[1], vote: 'failed', cause: expect.any(Error) as Error },
      { node: labels[2], vote: expect.stringMatching(/^(granted|silent)$/) as string },
    ])
  })

  test('say that a node was silent', async () => {
    await using nodes = await startRedisNodes(3)
    const own = nodes.nodes.map(({ port }) => new Redis({ host: '127.0.0.1', port }).on('error', () => undefined))
    const one = createLocks(redlock(own, { requestTimeout: '10s' }), { ttl: '60s' })
    const lease = await one.acquire('voted')
    // Two of them are enough for the grant; the third one may still be on its way to being let in, which takes a look at all.
    await until(async () => (await Promise.all(nodes.nodes.map((node) => node.cli('GET', 'voted')))).every(Boolean), {
      what: 'every node has voted',
    })
    const [frozen, ...others] = nodes.nodes
    await frozen!.freeze()
    const two = createLocks(redlock(own, { requestTimeout: '10s' }))
    const error = (await two.acquire('voted', { wait: 0 }).catch((error: unknown) => error)) as HeldError
    expect(error.votes).toEqual([
      { node: `127.0.0.1:${frozen!.port}`, vote: 'silent' },
      ...others.map(({ port }) => ({ node: `127.0.0.1:${port}`, vote: 'refused', holder: lease.owner })),
    ])
    await frozen!.thaw()
    await Promise.all([one.close(), two.close()])
    for (const client of own) client.disconnect()
  })
})

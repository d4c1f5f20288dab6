import { Redis } from 'ioredis'
import { createCluster } from 'redis'
import { describe, expect, test } from 'vitest'
import type { Engine, Grant, LeaseRequest, Refusal } from '../../../src/engine.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { createLocks } from '../../../src/locks.ts'
import { startCluster } from '../../../harness/servers/redis-cluster.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

/** What is asked of a node in one turn of the event loop goes to it in one call. */

let attempts = 0

function request(resource: string): LeaseRequest {
  return { resources: [resource], owner: `${++attempts}@test`, ttlMs: 30_000 }
}

/** How many scripts were called since the statistics were reset. */
async function calls(node: RedisServer): Promise<number> {
  const stats = await node.cli('INFO', 'commandstats')
  return [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0)
}

interface Opened extends AsyncDisposable {
  readonly engine: Engine
  readonly nodes: readonly RedisServer[]
  onEach(...command: string[]): Promise<void>
}

async function open(size: number, user: { username?: string } = {}, acl: readonly string[] = []): Promise<Opened> {
  const { nodes, stop } = await startRedisNodes(size, { acl: [...acl] })
  const login = user.username === undefined ? {} : { username: user.username, password: 'any' }
  const clients = nodes.map(({ host, port }) => new Redis({ host, port, ...login }))
  const engine = size === 1 ? redis(clients[0]) : redlock(clients)
  return {
    engine,
    nodes,
    async onEach(...command) {
      for (const node of nodes) await node.cli(...command)
    },
    async [Symbol.asyncDispose]() {
      await engine.close()
      for (const client of clients) client.disconnect()
      await stop()
    },
  }
}

/** Asks for that many new names in one turn until it takes that many calls: nodes are also told, now and then, that they are in use. */
async function takesCalls(it: Opened, count: number, expected: number): Promise<void> {
  const asExpected = async (): Promise<boolean> => {
    await it.onEach('CONFIG', 'RESETSTAT')
    await acquireAll(
      it.engine,
      Array.from({ length: count }, () => `new ${++attempts}`),
    )
    return (await Promise.all(it.nodes.map(calls))).every((found) => found === expected)
  }
  await until(asExpected, { what: `${expected} calls for ${count} leases` })
}

async function acquireAll(engine: Engine, names: readonly string[]): Promise<PromiseSettledResult<Grant | Refusal>[]> {
  return Promise.allSettled(names.map((name) => engine.acquire(request(name))))
}

const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `r${index}`)

describe.each([1, 3])('on %d nodes', (size) => {
  test('the steps of one turn are one call for each node, and every lease has its own answer', async () => {
    await using it = await open(size)
    // Lets the nodes in, and makes the script known.
    await acquireAll(it.engine, ['warm', 'warmer'])
    const held = request('r7')
    expect(await it.engine.acquire(held)).toMatchObject({ kind: 'granted' })
    const outcomes = await acquireAll(it.engine, names(50))
    for (const [index, outcome] of outcomes.entries()) {
      const expected = index === 7 ? { kind: 'refused', reason: 'held', holder: held.owner } : { kind: 'granted' }
      expect(outcome).toMatchObject({ status: 'fulfilled', value: expected })
    }
    await takesCalls(it, 50, 1)
  })

  test('a call has at most 64 steps', async () => {
    await using it = await open(size)
    await acquireAll(it.engine, ['warm', 'warmer'])
    await takesCalls(it, 130, 3)
  })

  test('they are carried out in their order: what is released first is free for who asks next', async () => {
    await using it = await open(size)
    const first = request('a')
    const grant = await it.engine.acquire(first)
    if (grant.kind === 'refused') throw new Error('it was free')
    const next = request('a')
    const [release, second, third] = await Promise.all([
      it.engine.release({ ...first, token: grant.token }),
      it.engine.acquire(next),
      it.engine.acquire(request('a')),
    ])
    expect(release).toMatchObject({ ours: true })
    expect(second).toMatchObject({ kind: 'granted' })
    expect((second as Grant).token).toBeGreaterThan(grant.token)
    expect(third).toMatchObject({ kind: 'refused', holder: next.owner })
  })

  test('a key of another type fails its own step and no other', async () => {
    await using it = await open(size)
    await it.onEach('RPUSH', 'r3', 'a list')
    const outcomes = await acquireAll(it.engine, names(6))
    expect(outcomes[3]).toMatchObject({ status: 'rejected', reason: { message: expect.stringContaining('WRONGTYPE') } })
    for (const index of [0, 1, 2, 4, 5]) expect(outcomes[index]).toMatchObject({ value: { kind: 'granted' } })
  })

  test('a key that the user may not use fails its own step and no other', async () => {
    const acl = 'carol on nopass ~r0 ~r1 ~r2 ~ringfence:* &* +@all'
    await using it = await open(size, { username: 'carol' }, [acl])
    const outcomes = await acquireAll(it.engine, names(4))
    expect(outcomes[3]).toMatchObject({ status: 'rejected', reason: { message: expect.stringMatching(/NOPERM/) } })
    for (const index of [0, 1, 2]) expect(outcomes[index]).toMatchObject({ value: { kind: 'granted' } })
  })

  test('a server that has forgotten its scripts is told them again, and every lease has its answer', async () => {
    await using it = await open(size)
    const before = names(5).map(request)
    const grants = await Promise.all(before.map((one) => it.engine.acquire(one)))
    await it.onEach('SCRIPT', 'FLUSH')
    const releases = before.map((one, index) => it.engine.release({ ...one, token: (grants[index] as Grant).token }))
    const acquires = names(5).map((name) => it.engine.acquire(request(name)))
    for (const release of await Promise.all(releases)) expect(release).toMatchObject({ ours: true })
    for (const outcome of await Promise.all(acquires)) expect(outcome).toMatchObject({ kind: 'granted' })
    // From then on in one call again.
    await takesCalls(it, 3, 1)
  })
})

test('a replica refuses the whole call with an error that drivers know', async () => {
  await using master = await startRedis()
  await using replica = await startRedis()
  let asked = 0
  const client = new Redis({
    port: replica.port,
    reconnectOnError: ({ message }) => {
      asked += Number(message.includes('READONLY'))
      return false
    },
  })
  const engine = redis(client)
  await acquireAll(engine, ['a', 'b'])
  await replica.cli('REPLICAOF', '127.0.0.1', String(master.port))
  const outcomes = await acquireAll(engine, ['c', 'd'])
  const said = `${replica.port}: is a replica of 127.0.0.1:${master.port}: locks need the master; connect to 127.0.0.1:${master.port}`
  for (const outcome of outcomes) {
    expect(outcome).toMatchObject({ status: 'rejected', reason: { message: expect.stringContaining(said) } })
  }
  expect(asked).toBeGreaterThan(0)
  await engine.close()
  client.disconnect()
})

test('on a Cluster the steps of one slot go together, and the others by themselves', async () => {
  const cluster = await startCluster()
  const client = createCluster({ rootNodes: cluster.nodes.map(({ port }) => ({ url: `redis://127.0.0.1:${port}` })) })
  client.on('error', () => undefined)
  await client.connect()
  const locks = createLocks(redis(client))
  const all = ['{a}1', '{a}2', '{a}3', '{a}4', 'b', 'c', 'd', 'e', 'f']
  const acquireAndRelease = async (): Promise<void> => {
    const leases = await Promise.all(all.map((name) => locks.acquire(name)))
    expect(leases.map(({ held }) => held)).not.toContain(false)
    expect(await Promise.all(leases.map((lease) => lease.release()))).not.toContain(false)
  }
  await acquireAndRelease()
  await Promise.all(cluster.nodes.map((node) => node.cli('CONFIG', 'RESETSTAT')))
  await acquireAndRelease()
  const counts = await Promise.all(cluster.nodes.map(calls))
  // One for the four of a slot, and one for each of the five others; twice.
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(12)
  await locks.close()
  client.destroy()
  await cluster.stop()
})

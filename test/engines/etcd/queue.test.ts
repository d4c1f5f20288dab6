import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { etcd, type EtcdOptions, type Fetch } from '../../../src/engines/etcd/index.ts'
import type { Engine, QueuedGrant } from '../../../src/engine.ts'
import { createLocks } from '../../../src/locks.ts'
import { startEtcd, type EtcdServer } from '../../../harness/servers/etcd.ts'
import { until } from '../../../harness/until.ts'
import { granted, requestFor } from '../requests.ts'
import { dropsItsPlace, givesUpItsPlace, keepsItsPlace } from '../given-up.ts'
import { queueLength } from '../readers-and-writers.ts'
import { base64, contents, watchedFetch } from './setup.ts'

let server: EtcdServer

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

function engine(options: EtcdOptions = {}): Engine {
  const made = etcd(server.url, options)
  onTestFinished(() => made.close())
  return made
}

const never = new AbortController().signal

async function hold(resources: string | string[], ttlMs?: number) {
  const holder = engine()
  const lease = await granted(holder, requestFor(resources, ttlMs))
  return { lease, engine: holder, release: () => holder.release(lease) }
}

/** Waits in line behind those who are there, and tells when it is first. */
async function queued(resource: string, options: EtcdOptions = {}, ttlMs?: number) {
  const waiter = engine(options)
  const before = await queueLength(waiter, resource)
  const request = requestFor(resource, ttlMs)
  const turn = waiter.enqueue!(request, never)
  await until(async () => (await queueLength(waiter, resource)) === before + 1, { what: 'a place in the queue' })
  return {
    turn,
    request,
    release: async () => waiter.release({ ...request, token: (await turn).token }),
  }
}

/** Notes the keys that are watched. */
function spy(watched: string[]): Fetch {
  return watchedFetch((path, body: { create_request?: { key: string } }) => {
    if (path === '/v3/watch') watched.push(Buffer.from(body.create_request!.key, 'base64').toString())
  })
}

test('waiters of several processes are served in the order in which they came, with growing tokens', async () => {
  const first = await hold('fifo')
  const waiters = [await queued('fifo'), await queued('fifo'), await queued('fifo')]
  const order: number[] = []
  const tokens = [first.lease.token]
  const all = waiters.map(async ({ turn, release }, index) => {
    const { token } = await turn
    order.push(index)
    tokens.push(token)
    await release()
  })
  await first.release()
  await Promise.all(all)
  expect(order).toEqual([0, 1, 2])
  expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)))
})

test('each waiter watches its predecessor and nobody else', async () => {
  const watched: string[][] = [[], []]
  const first = await hold('watched')
  const second = await queued('watched', { fetch: spy(watched[0]!) })
  const third = await queued('watched', { fetch: spy(watched[1]!) })
  await until(() => watched.every((list) => list.length > 0), { what: 'their watches' })
  await first.release()
  await second.turn
  expect(new Set(watched[0])).toEqual(new Set([`ringfence/watched/${first.lease.owner}`]))
  expect(new Set(watched[1])).toEqual(new Set([`ringfence/watched/${second.request.owner}`]))
  await second.release()
  await third.release()
})

test('an attempt without waiting is refused while others queue, also when nobody holds it yet', async () => {
  const first = await hold('queue-jump')
  const second = await queued('queue-jump')
  const outsider = engine()
  await first.release()
  const outcome = await outsider.acquire(requestFor('queue-jump'))
  expect(outcome).toMatchObject({ kind: 'refused', reason: 'held', holder: second.request.owner })
  await second.release()
})

test('a place is kept for longer than its ttl, and the lease that follows has its whole time', async () => {
  const first = await hold('long-wait')
  const waiter = engine()
  const request = requestFor('long-wait', 1000)
  let renewals = 0
  const fetch = watchedFetch((path) => void (path === '/v3/lease/keepalive' && renewals++))
  const waiting = engine({ fetch }).enqueue!(request, never)
  await until(() => renewals > 6, { what: 'several renewals', withinMs: 20_000 })
  await first.release()
  const beforeMs = performance.now()
  const { token, since } = await waiting
  expect(since.monotonicMs).toBeGreaterThan(beforeMs - 1000)
  expect(await waiter.extend([{ ...request, token }])).toEqual([{ kind: 'held' }])
  await waiter.release({ ...request, token })
})

test('an aborted wait rejects with its reason; by then its place and its etcd lease are gone', async () => {
  const first = await hold('aborted')
  const waiter = engine()
  const controller = new AbortController()
  const waiting = waiter.enqueue!(requestFor('aborted'), controller.signal)
  await until(async () => (await queueLength(waiter, 'aborted')) === 2, { what: 'a place in the queue' })
  const reason = new Error('changed my mind')
  controller.abort(reason)
  await expect(waiting).rejects.toBe(reason)
  expect(await queueLength(waiter, 'aborted')).toBe(1)
  await first.release()
  expect(await contents(server)).toEqual({ keys: [], leases: [] })
})

test('a waiter whose place was removed says so, and may try again', async () => {
  const first = await hold('removed')
  const waiter = await queued('removed', {}, 2000)
  await server.call('kv/deleterange', { key: base64(`ringfence/removed/${waiter.request.owner}`) })
  await expect(waiter.turn).rejects.toMatchObject({
    code: 'ENGINE',
    transient: true,
    message: expect.stringContaining('place in the queue is gone'),
  })
  await first.release()
})

test('a waiter whose engine is closed learns that, and stops waiting', async () => {
  const first = await hold('closing')
  const waiter = etcd(server.url)
  const waiting = waiter.enqueue!(requestFor('closing'), never).catch((error: unknown) => error)
  await until(async () => (await queueLength(first.engine, 'closing')) === 2, { what: 'a place in the queue' })
  await waiter.close()
  expect(await waiting).toMatchObject({ code: 'ENGINE', message: expect.stringContaining('closed') })
  await first.release()
})

test('requests for several resources that cross each other all get their turn', async () => {
  const sets = [['x', 'y'], ['y', 'z'], ['x', 'z'], ['x'], ['x', 'y', 'z']]
  const locks = Array.from({ length: 3 }, () => createLocks(etcd(server.url), { wait: '40s' }))
  onTestFinished(() => Promise.all(locks.map((each) => each.close())).then(() => undefined))
  const inside = new Set<string>()
  let overlaps = 0
  let visits = 0
  const last = new Map<string, bigint>()
  const work = sets.flatMap((set) => locks.map((each) => ({ set, each })))
  await Promise.all(
    work.map(({ set, each }) =>
      each.using(set, async ({ token }) => {
        for (const name of set) {
          if (inside.has(name) || token <= (last.get(name) ?? 0n)) overlaps++
          inside.add(name)
          last.set(name, token)
        }
        await new Promise((resolve) => setImmediate(resolve))
        for (const name of set) inside.delete(name)
        visits++
      }),
    ),
  )
  expect(visits).toBe(work.length)
  expect(overlaps).toBe(0)
})

test('a waiter that would begin its watch in compacted history looks again instead', async () => {
  const first = await hold('compacted')
  let watches = 0
  const fetch = watchedFetch(async (path) => {
    if (path !== '/v3/watch' || watches++ > 0) return
    // Between its look and its watch: the predecessor leaves, and that part of the history goes too.
    await first.release()
    const { header } = (await server.call('kv/put', { key: base64('later') })) as { header: { revision: string } }
    await server.call('kv/compaction', { revision: header.revision })
    await server.call('kv/deleterange', { key: base64('later') })
  })
  const request = requestFor('compacted')
  const waiter = engine({ fetch })
  const startedMs = performance.now()
  const { token } = await waiter.enqueue!(request, never)
  // Sooner than by its own regular look.
  expect(performance.now() - startedMs).toBeLessThan(4000)
  expect(watches).toBe(1)
  await waiter.release({ ...request, token })
})

test('a release between a look and the watch that follows is not missed', async () => {
  const first = await hold('gap')
  let released = false
  const fetch = watchedFetch(async (path) => {
    if (path !== '/v3/watch' || released) return
    released = true
    await first.release()
  })
  const request = requestFor('gap')
  const waiter = engine({ fetch })
  const startedMs = performance.now()
  const { token }: QueuedGrant = await waiter.enqueue!(request, never)
  expect(performance.now() - startedMs).toBeLessThan(4000)
  await waiter.release({ ...request, token })
})

test('when callers of a process give up, the next one keeps their place', () =>
  keepsItsPlace(() => etcd(server.url), 'kept'))

test('a place is given up when the next caller of the process wants something else', () =>
  givesUpItsPlace(() => etcd(server.url), 'not-kept'))

test('a place that was kept for someone who does not come is dropped', async () => {
  await dropsItsPlace(() => etcd(server.url), 'dropped')
  expect((await contents(server)).keys.filter((key) => key.startsWith('ringfence/dropped/'))).toEqual([])
})

import { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { etcd } from '../../src/engines/etcd/index.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Duration, type Engine, type LockEvent, type Locks } from '../../src/index.ts'
import { startEtcd, startEtcdCluster } from '../../harness/servers/etcd.ts'
import { startRedis, startRedisNodes } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'

/** Not longer than a request may take: the wait is over before the engine knows that it has failed. */
const WAIT = '1s'
/** A request may take a tenth of this. */
const TTL = '15s'

interface Told {
  readonly locks: Locks
  readonly denied: () => LockEvent | undefined
}

function locksOn(engine: Engine, ttl: Duration = TTL): Told {
  const events: LockEvent[] = []
  const locks = createLocks(engine, { ttl, observe: (event) => void events.push(event) })
  onTestFinished(() => locks.close())
  return { locks, denied: () => events.find(({ type }) => type === 'denied') }
}

function client(url: string): Redis {
  const made = new Redis(url).on('error', () => undefined)
  onTestFinished(() => made.disconnect())
  return made
}

describe('an outage is not a resource that is busy', () => {
  test('redis: nothing listens', async () => {
    const server = await startRedis()
    await server.stop()
    const { locks, denied } = locksOn(redis(client(server.url)))
    await expect(locks.acquire('k', { wait: WAIT })).rejects.toMatchObject({
      code: 'ENGINE',
      transient: true,
      message: expect.stringMatching(
        /^127\.0\.0\.1:\d+: no answer yet after 1000 ms \(.*ECONNREFUSED.*\), when the wait ended; a node has up to 1500 ms$/,
      ),
    })
    expect(denied()).toMatchObject({ reason: 'failed', cause: { code: 'ENGINE' } })
  })

  test('redis: slower than the wait', async () => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const { locks } = locksOn(redis(client(server.url)))
    await locks.using('settle', () => undefined)
    await server.cli('CLIENT', 'PAUSE', '2000')
    await expect(locks.acquire('k', { wait: 50 })).rejects.toMatchObject({
      code: 'ENGINE',
      transient: true,
      message: expect.stringMatching(/: no answer yet after 50 ms, when the wait ended; a node has up to 1500 ms$/),
    })
  })

  test('redlock: one of three is up', async () => {
    const { nodes, stop } = await startRedisNodes(3)
    onTestFinished(stop)
    const { locks, denied } = locksOn(redlock(nodes.map(({ url }) => client(url))))
    await locks.using('settle', () => undefined)
    for (const node of nodes.slice(1)) await node.kill()
    // Everyone in line, not only the one who asks.
    const waits = await Promise.allSettled([1, 2, 3].map(() => locks.acquire('k', { wait: WAIT })))
    for (const wait of waits) {
      expect(wait).toMatchObject({
        status: 'rejected',
        reason: { code: 'QUORUM', quorum: 2, size: 3, transient: true },
      })
      const { nodes: silent } = (wait as PromiseRejectedResult).reason as { nodes: { node: string }[] }
      expect(silent.map(({ node }) => node)).toEqual(nodes.slice(1).map(({ port }) => `127.0.0.1:${port}`))
    }
    expect(denied()).toMatchObject({ reason: 'failed', cause: { code: 'QUORUM' } })
  })

  test('etcd: no leader', async () => {
    const cluster = await startEtcdCluster()
    onTestFinished(() => cluster.stop())
    for (const member of cluster.nodes.slice(1)) await member.kill()
    const { locks, denied } = locksOn(etcd(cluster.nodes[0]!.url))
    await expect(locks.acquire('k', { wait: WAIT })).rejects.toMatchObject({ code: 'ENGINE' })
    expect(denied()).toMatchObject({ reason: 'failed' })
  })

  test('redis, redlock and etcd: it begins in the middle of a wait', async () => {
    const outcomes = await Promise.all([inTheMiddle('redis'), inTheMiddle('redlock'), inTheMiddle('etcd')])
    const denied = { reason: 'failed' }
    expect(outcomes).toMatchObject([
      { outcome: { code: 'ENGINE', transient: true }, denied },
      { outcome: { code: 'QUORUM', transient: true }, denied },
      { outcome: { code: 'ENGINE', transient: true }, denied },
    ])
  })
})

/** What becomes of a wait during which the servers are killed. */
async function inTheMiddle(name: keyof typeof OUTAGES) {
  const { engine, kill } = await OUTAGES[name]()
  const [holder, waiter] = [locksOn(engine(), '3s'), locksOn(engine(), '10s')]
  await holder.locks.acquire('k')
  const waiting = waiter.locks.tryAcquire('k', { wait: '5s' }).catch((error: unknown) => error)
  await until(async () => (await holder.locks.status('k'))?.waiters === 1, { what: 'it is in line' })
  await kill()
  return { outcome: await waiting, denied: waiter.denied() }
}

interface Outage {
  readonly engine: () => Engine
  readonly kill: () => Promise<unknown>
}

const OUTAGES: Record<'redis' | 'redlock' | 'etcd', () => Promise<Outage>> = {
  async redis() {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    return { engine: () => redis(client(server.url)), kill: () => server.kill() }
  },
  async redlock() {
    const { nodes, stop } = await startRedisNodes(3)
    onTestFinished(stop)
    return {
      engine: () => redlock(nodes.map(({ url }) => client(url))),
      kill: () => Promise.all(nodes.slice(1).map((node) => node.kill())),
    }
  },
  async etcd() {
    const server = await startEtcd()
    onTestFinished(() => server.stop())
    return { engine: () => etcd(server.url), kill: () => server.kill() }
  },
}

import { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { etcd } from '../../src/engines/etcd/index.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Engine, type LockEvent, type Locks } from '../../src/index.ts'
import { startEtcdCluster } from '../../harness/servers/etcd.ts'
import { startRedis, startRedisNodes } from '../../harness/servers/redis.ts'

/** Not longer than a request may take: the wait is over before the engine knows that it has failed. */
const WAIT = '1s'
/** A request may take a tenth of this. */
const TTL = '15s'

interface Told {
  readonly locks: Locks
  readonly denied: () => LockEvent | undefined
}

function locksOn(engine: Engine): Told {
  const events: LockEvent[] = []
  const locks = createLocks(engine, { ttl: TTL, observe: (event) => void events.push(event) })
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
})

import { describe, expect, test } from 'vitest'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startProxy, type Proxy } from '../../../harness/faults/proxy.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import { SINGLE } from './drivers-clients.ts'
import { lockKeys, lockKeysBecome } from './faults-quorum.ts'

/**
 * The request arrives, its reply is lost with the connection. ioredis sends the command again by itself, so it takes
 * effect twice; node-redis rejects, so its effect is unknown.
 */
const drivers = [
  { driver: 'ioredis', outcome: 'fulfilled' },
  { driver: 'node-redis', outcome: 'rejected' },
] as const

describe.concurrent.each(drivers)('a lost reply, $driver', ({ driver, outcome }) => {
  test('of an acquire: the lease is had all the same, with one owner and one token', async () => {
    await using setup = await throughProxy(driver)
    const { locks, proxy, server } = setup
    proxy.cutOnNextReply('order')
    const lease = await locks.acquire('order', { wait: '10s' })
    expect(proxy.lostReplies).toBe(1)
    expect(await server.cli('GET', 'order')).toBe(lease.owner)
    expect(await server.cli('GET', 'ringfence:fence:{order}')).toBe(String(lease.token))
    await lease.extend()
    expect(await lease.release()).toBe(true)
    expect(await lockKeys(server)).toEqual([])
  })

  test('of an acquire that does not wait: what is not had does not stay behind', async () => {
    await using setup = await throughProxy(driver)
    const { locks, proxy, server } = setup
    proxy.cutOnNextReply('order')
    const [tried] = await Promise.allSettled([locks.tryAcquire('order')])
    expect(tried).toMatchObject({ status: outcome })
    const owners = tried.status === 'fulfilled' ? [tried.value?.owner] : []
    // Before its ttl is over.
    await lockKeysBecome([server], owners.length === 0 ? [] : ['order'])
    expect(await owner(server, 'order')).toEqual(owners)
    await locks.close()
    await lockKeysBecome([server], [])
  })

  test('of an extend: it is unknown, not lost; the lease stays held and the next one proves it', async () => {
    await using setup = await throughProxy(driver)
    const { locks, proxy, server } = setup
    const lease = await locks.acquire('order')
    proxy.cutOnNextReply('order')
    const [extended] = await Promise.allSettled([lease.extend('60s')])
    expect(extended).toMatchObject({ status: outcome })
    expect(proxy.lostReplies).toBe(1)
    expect([lease.held, lease.signal.aborted]).toEqual([true, false])
    expect(Number(await server.cli('PTTL', 'order'))).toBeGreaterThan(30_000)
    await until(() => lease.extend('60s').then(() => true), { what: 'the lease was extended' })
    expect(lease.remaining()).toBeGreaterThan(30_000)
    expect(await lease.release()).toBe(true)
  })

  test('of a renewal: it is tried again in time, and the signal stays quiet', async () => {
    const events: LockEvent['type'][] = []
    await using setup = await throughProxy(driver, (type) => events.push(type))
    const { locks, proxy } = setup
    const lease = await locks.acquire('order', { ttl: '6s' })
    events.length = 0
    proxy.cutOnNextReply('order')
    await until(() => events.includes('renewed'), { what: 'it was renewed' })
    expect(proxy.lostReplies).toBe(1)
    expect(events.includes('doubtful')).toBe(outcome === 'rejected')
    expect([lease.held, lease.signal.aborted]).toEqual([true, false])
  })

  test('of a release: the resource is free at once, and the next holder is not disturbed', async () => {
    await using setup = await throughProxy(driver)
    const { locks, proxy, server, direct } = setup
    const lease = await locks.acquire('order')
    const signal = lease.signal
    proxy.cutOnNextReply('order')
    const released = Promise.allSettled([lease.release()])
    await until(() => proxy.lostReplies === 1, { what: 'the reply was lost' })
    const next = await direct.acquire('order', { wait: '10s' })
    const [settled] = await released
    expect(settled).toMatchObject({ status: outcome })
    expect(signal.reason).toMatchObject({ reason: 'released' })
    expect(next.token).toBeGreaterThan(lease.token)
    await until(() => locks.tryAcquire('order').then(() => true), { what: 'the client is back' })
    expect(await owner(server, 'order')).toEqual([next.owner])
  })

  test('on one node of five: nobody notices', async () => {
    await using setup = await quorumThroughProxies(driver)
    const { locks, proxies, servers } = setup
    const [proxy] = proxies
    proxy!.cutOnNextReply('order')
    const lease = await locks.acquire('order', { wait: 0 })
    await until(() => proxy!.lostReplies === 1, { what: 'a reply was lost' })
    proxy!.cutOnNextReply('order')
    await lease.extend()
    await until(() => proxy!.lostReplies === 2, { what: 'a second one was lost' })
    proxy!.cutOnNextReply('order')
    expect(await lease.release()).toBe(true)
    await until(() => proxy!.lostReplies === 3, { what: 'a third one was lost' })
    await lockKeysBecome(servers, [])
  })

  test('on all of five: an acquire that waits gets the lease, and nothing of the attempt before stays', async () => {
    await using setup = await quorumThroughProxies(driver)
    const { locks, proxies, servers } = setup
    for (const proxy of proxies) proxy.cutOnNextReply('order')
    const lease = await locks.acquire('order', { wait: '20s' })
    expect(proxies.map(({ lostReplies }) => lostReplies)).toEqual([1, 1, 1, 1, 1])
    await lease.extend()
    const owners = await Promise.all(servers.map((server) => owner(server, 'order')))
    expect(owners.flat().filter((name) => name === lease.owner).length).toBeGreaterThanOrEqual(3)
    expect(await lease.release()).toBe(true)
    await lockKeysBecome(servers, [])
  })
})

interface Setup extends AsyncDisposable {
  readonly server: RedisServer
  readonly proxy: Proxy
  readonly locks: Locks
  /** Another process, past the proxy. */
  readonly direct: Locks
}

/** A server behind a proxy, with its scripts loaded: every step is one request. */
async function throughProxy(driver: string, observe?: (type: LockEvent['type']) => void): Promise<Setup> {
  const server = await startRedis()
  const proxy = await startProxy(server.port)
  const clients = [await SINGLE[driver]!(proxy), await SINGLE[driver]!(server)]
  const [locks, direct] = clients.map(({ client }) =>
    createLocks(redis(client, { requestTimeout: '2s' }), { observe: ({ type }) => observe?.(type) }),
  )
  await warmUp(locks!)
  return {
    server,
    proxy,
    locks: locks!,
    direct: direct!,
    async [Symbol.asyncDispose]() {
      await locks!.close()
      await direct!.close()
      for (const connected of clients) await connected.close()
      await proxy.close()
      await server.stop()
    },
  }
}

interface QuorumSetup extends AsyncDisposable {
  readonly servers: readonly RedisServer[]
  readonly proxies: readonly Proxy[]
  readonly locks: Locks
}

async function quorumThroughProxies(driver: string): Promise<QuorumSetup> {
  const { nodes, stop } = await startRedisNodes(5)
  const proxies = await Promise.all(nodes.map(({ port }) => startProxy(port)))
  const clients = await Promise.all(proxies.map((proxy) => SINGLE[driver]!(proxy)))
  const locks = createLocks(
    redlock(
      clients.map(({ client }) => client),
      { requestTimeout: '2s' },
    ),
  )
  await warmUp(locks)
  return {
    servers: nodes,
    proxies,
    locks,
    async [Symbol.asyncDispose]() {
      await locks.close()
      for (const connected of clients) await connected.close()
      for (const proxy of proxies) await proxy.close()
      await stop()
    },
  }
}

async function warmUp(locks: Locks): Promise<void> {
  const lease = await locks.acquire('warm-up')
  await lease.extend()
  await lease.release()
}

async function owner(server: RedisServer, resource: string): Promise<string[]> {
  return [await server.cli('GET', resource)].filter((value) => value !== '')
}

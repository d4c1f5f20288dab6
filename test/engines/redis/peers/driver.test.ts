import { Cluster } from 'ioredis'
import { createCluster } from 'redis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { redis, redlock } from '../../../../src/engines/redis/index.ts'
import { resourceKeys } from '../../../../src/engines/redis/keys.ts'
import { EngineError } from '../../../../src/index.ts'
import { Lease } from '../../../../src/lease.ts'
import type { RedisServer } from '../../../../harness/servers/redis.ts'
import { startCluster } from '../../../../harness/servers/redis-cluster.ts'
import { until } from '../../../../harness/until.ts'
import { fenceOn, gone, ioredis, locksOn, nodeRedis, ownerOn, proxyTo, server, servers, settle } from './bench.ts'

const drivers = {
  ioredis: (at: { readonly url: string }) => {
    const client = ioredis(at)
    return Promise.resolve({ client, isOffline: () => client.status !== 'ready' })
  },
  'node-redis': async (at: { readonly url: string }) => {
    const client = await nodeRedis(at)
    return { client, isOffline: () => !client.isReady }
  },
}
const clusters = {
  ioredis: (nodes: readonly RedisServer[]) => {
    const cluster = new Cluster(nodes.map(({ host, port }) => ({ host, port })))
    onTestFinished(() => cluster.disconnect())
    return Promise.resolve(cluster)
  },
  'node-redis': async (nodes: readonly RedisServer[]) => {
    const cluster = await createCluster({ rootNodes: nodes.map(({ url }) => ({ url })) }).connect()
    onTestFinished(() => cluster.destroy())
    return cluster
  },
}

describe.each(Object.entries(drivers))('%s', (_name, connect) => {
  test('bug 20: a lost reply ends with one lease or with none, and no ghost key', async () => {
    const node = await server()
    const proxy = await proxyTo(node)
    const { client } = await connect(proxy)
    const us = locksOn(redis(client), { ttl: '60s' })
    await settle(us)
    for (const [index, resource] of ['order', 'stock', 'card'].entries()) {
      proxy.cutOnNextReply(resource)
      const outcome: unknown = await us.locks.tryAcquire(resource).catch((error: unknown) => error)
      expect(proxy.lostReplies).toBe(index + 1)
      // Never null: nobody else is there, so "someone else has it" would be a lie.
      expect(outcome instanceof Lease || outcome instanceof EngineError).toBe(true)
      const owner = outcome instanceof Lease ? outcome.owner : ''
      await until(async () => (await ownerOn(node, resource)) === owner, { what: `its key holds '${owner}'` })
      const again = await us.locks.tryAcquire(resource)
      expect([outcome, again].filter((one) => one instanceof Lease)).toHaveLength(1)
    }
  })

  test('bug 20: who is ready to wait gets over a lost reply and holds one lease', async () => {
    const node = await server()
    const proxy = await proxyTo(node)
    const { client } = await connect(proxy)
    const us = locksOn(redis(client), { ttl: '60s' })
    await settle(us)
    proxy.cutOnNextReply('order')
    const lease = await us.locks.acquire('order')
    expect(proxy.lostReplies).toBe(1)
    expect(await ownerOn(node, 'order')).toBe(lease.owner)
    expect(await fenceOn(node, 'order')).toBe(lease.token)
    await lease.extend()
    // The release's own reply is lost: the key is gone all the same.
    proxy.cutOnNextReply('order')
    await lease.release().catch(() => false)
    await gone([node], 'order')
  })

  test('bug 20: an acquire that the driver runs late, after we gave up, leaves no ghost key', async () => {
    const node = await server()
    const proxy = await proxyTo(node)
    const { client, isOffline } = await connect(proxy)
    const us = locksOn(redis(client, { requestTimeout: 500 }), { ttl: '60s' })
    await settle(us)
    await proxy.refuse(true)
    proxy.reset()
    await until(isOffline, { what: 'the driver is offline' })
    await expect(us.locks.tryAcquire('order')).rejects.toBeInstanceOf(EngineError)
    expect(await fenceOn(node, 'order')).toBe(0n)
    await proxy.refuse(false)
    await until(async () => (await fenceOn(node, 'order')) > 0n, { what: 'the acquire runs after all' })
    await gone([node], 'order')
    await using lease = await us.locks.tryAcquire('order')
    expect(await ownerOn(node, 'order')).toBe(lease?.owner)
  })

  test('bug 22: an emptied script cache breaks no operation', async () => {
    const node = await server({ durable: true })
    const { client } = await connect(node)
    const us = locksOn(redis(client), { ttl: '30s' })
    const flush = (): Promise<string> => node.cli('SCRIPT', 'FLUSH')
    const lease = await us.locks.acquire('order')
    await flush()
    await lease.extend()
    const waiting = us.locks.acquire('order')
    await flush()
    expect(await lease.release()).toBe(true)
    const next = await waiting
    await flush()
    const infos = []
    for await (const info of us.locks.inspect('order')) infos.push(info)
    expect(infos).toMatchObject([{ owner: next.owner, token: next.token }])
    await flush()
    expect(await next.release()).toBe(true)

    const survivor = await us.locks.acquire('order')
    await node.kill()
    await node.restart()
    await survivor.extend()
    expect(await ownerOn(node, 'order')).toBe(survivor.owner)
    expect(await survivor.release()).toBe(true)
  })
})

test('bug 22: an emptied script cache does not break a vote that needs a second round', async () => {
  const three = await servers(3)
  const us = locksOn(redlock(three.map(ioredis), { restart: 'trust' }))
  for (const [index, node] of three.entries()) {
    // Counters that have drifted apart, ahead of the clock: the nodes number the grant differently.
    await node.cli('SET', resourceKeys('', 'order').fence, String(Date.now() * 1000 + 1e12 * (index + 1)))
    await node.cli('SCRIPT', 'FLUSH')
  }
  const lease = await us.locks.acquire('order')
  const fences = await Promise.all(three.map((node) => fenceOn(node, 'order')))
  expect(fences.filter((fence) => fence === lease.token).length).toBeGreaterThanOrEqual(2)
  expect(await lease.release()).toBe(true)
})

test('bug 22: an emptied script cache is no restart: the nodes of a quorum go on voting', async () => {
  const three = await servers(3)
  const us = locksOn(redlock(three.map(ioredis)))
  await settle(us)
  for (const node of three) await node.cli('SCRIPT', 'FLUSH')
  await using lease = await us.locks.tryAcquire('order')
  expect(lease?.held).toBe(true)
})

test('bug 11: plain names work on a Cluster, alone and renewed together; several share a hash tag', async () => {
  await using cluster = await startCluster()
  for (const [driver, connect] of Object.entries(clusters)) {
    const us = locksOn(redis(await connect(cluster.nodes), { requestTimeout: '5s' }), { ttl: 3000 })
    const names = Array.from({ length: 12 }, (_, index) => `${driver}:order:${index}`)
    const leases = await Promise.all(names.map((name) => us.locks.acquire(name)))
    const renewed = (): Set<string> =>
      new Set(us.events.flatMap((event) => (event.type === 'renewed' ? event.resources : [])))
    await until(() => renewed().size === names.length, { what: 'every lease is renewed' })
    expect(await us.locks.tryAcquire(names[0]!)).toBeNull()
    expect(await Promise.all(leases.map((lease) => lease.release()))).toEqual(names.map(() => true))

    const both = await us.locks.acquire(['{shop}:order', '{shop}:stock'])
    expect(await us.locks.tryAcquire('{shop}:stock')).toBeNull()
    expect(await both.release()).toBe(true)
    await expect(us.locks.acquire(['order', 'stock'])).rejects.toThrow(/hash tag.*'\{.+\}order'/)
    await us.locks.close()
  }
})

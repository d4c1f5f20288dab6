import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { startRedis, type RedisOptions, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'
import type { LeaseInfo } from '../../../src/engine.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { lockKeysBecome, startQuorum } from './faults-quorum.ts'

interface Bench extends AsyncDisposable {
  readonly server: RedisServer
  readonly client: Redis
  locks(user?: string): Locks
}

async function startBench(options: RedisOptions = {}): Promise<Bench> {
  const server = await startRedis(options)
  const client = new Redis(server.url)
  const all: { locks: Locks; client: Redis }[] = []
  return {
    server,
    client,
    locks(user) {
      const url = user === undefined ? server.url : server.url.replace('//', `//${user}@`)
      const own = new Redis(url).on('error', () => undefined)
      const locks = createLocks(redis(own), { ttl: '20s' })
      all.push({ locks, client: own })
      return locks
    },
    async [Symbol.asyncDispose]() {
      for (const { locks, client: own } of all) await locks.close().finally(() => own.disconnect())
      client.disconnect()
      await server.stop()
    },
  }
}

const SHARED = { shared: true } as const

async function shown(locks: Locks, resource: string): Promise<LeaseInfo[]> {
  const infos: LeaseInfo[] = []
  for await (const info of locks.inspect(resource)) infos.push(info)
  return infos
}

function readersOn(server: RedisServer, resource: string): Promise<string[]> {
  return server
    .cli('ZRANGE', `ringfence:readers:{${resource}}`, '0', '-1')
    .then((text) => text.split('\n').filter(Boolean))
}

test('other software sees a lock that is held, and no reader gets in beside its lock', async () => {
  await using bench = await startBench()
  const locks = bench.locks()
  const lease = await locks.acquire('order', SHARED)
  expect(await bench.client.get('order')).toBe(`shared:${lease.owner}`)
  expect(await bench.client.set('order', 'other software', 'PX', 30_000, 'NX')).toBe(null)
  await lease.release()
  expect(await bench.client.exists('order', 'ringfence:readers:{order}')).toBe(0)
  expect(await bench.client.set('order', 'other software', 'PX', 30_000, 'NX')).toBe('OK')
  expect(await locks.tryAcquire('order', SHARED)).toBe(null)
})

test('an exclusive lease uses no command that it did not use before there were readers', async () => {
  await using bench = await startBench()
  const locks = bench.locks()
  await locks.using('other', async () => undefined)
  await locks.using('order', SHARED, async () => undefined)
  await bench.server.cli('CONFIG', 'RESETSTAT')
  await locks.using('order', async () => undefined)
  const stats = [...(await bench.server.cli('INFO', 'commandstats')).matchAll(/cmdstat_(\w+):calls=(\d+)/g)]
  const calls = Object.fromEntries(stats.map(([, name, count]) => [name!, Number(count)]))
  delete calls['info']
  delete calls['config']
  // Acquire: time, set, set. Release: get, zrangebyscore, del, publish.
  expect(calls).toEqual({ evalsha: 2, time: 1, set: 2, get: 1, zrangebyscore: 1, del: 1, publish: 1 })
})

test('readers of many processes who wait for a writer get in together, with one token, and leave nothing', async () => {
  await using bench = await startBench()
  const writer = await bench.locks().acquire('order')
  const processes = Array.from({ length: 6 }, () => bench.locks())
  const waiting = processes.map((locks) => locks.acquire('order', { ...SHARED, wait: '60s' }))
  await until(async () => Number(await bench.server.cli('ZCOUNT', 'ringfence:line:{order}', '(0', '+inf')) === 6, {
    what: 'all are in line',
  })
  await writer.release()
  const leases = await Promise.all(waiting)
  expect(new Set(leases.map(({ token }) => token)).size).toBe(1)
  expect((await readersOn(bench.server, 'order')).length).toBe(6)
  for (const lease of leases) expect(await lease.release()).toBe(true)
  expect(await bench.client.exists('order', 'ringfence:readers:{order}', 'ringfence:line:{order}')).toBe(0)
})

test('a reader that is kept out by a writer in line is told so, and not that others read', async () => {
  await using bench = await startBench()
  const [first, second, third] = [bench.locks(), bench.locks(), bench.locks()]
  const reader = await first.acquire('order', SHARED)
  const writing = second.acquire('order', { wait: '20s' })
  await until(async () => (await bench.client.zcount('ringfence:line:{order}', '(0', '+inf')) === 1, {
    what: 'the writer is in line',
  })
  await expect(third.acquire('order', { ...SHARED, wait: 0 })).rejects.toThrow(
    `'order' is shared by ${reader.owner.split('@')[1]}, and a writer waits for it, which keeps later readers out`,
  )
  await reader.release()
  await (await writing).release()
})

test('a user that may not use the keys of readers has exclusive leases, and an error that says why it has no other', async () => {
  await using bench = await startBench({
    acl: ['writer on nopass ~order ~ringfence:fence:* ~ringfence:line:* &* +@all'],
  })
  const locks = bench.locks('writer')
  await locks.using('order', async () => undefined)
  await expect(locks.acquire('order', SHARED)).rejects.toMatchObject({ code: 'ENGINE', transient: false })
  await using reader = await bench.locks().acquire('order', SHARED)
  expect(await locks.tryAcquire('order')).toBe(null)
  expect(await shown(locks, 'order')).toMatchObject([{ owner: reader.owner, shared: true }])
  const finding = (await locks.check()).find(({ id }) => id === 'redis/shared')
  expect(finding).toMatchObject({ severity: 'note', found: expect.stringContaining('ZSCORE ringfence:readers:') })
})

test('on a quorum, inspect shows the readers that a majority has, although nodes name different ones', async () => {
  await using quorum = await startQuorum({}, 3)
  const [one, two] = [quorum.locks({ ttl: '20s' }), quorum.locks({ ttl: '25s' })]
  const leases = [await one.acquire('order', SHARED), await two.acquire('order', SHARED)]
  await until(
    async () =>
      (await Promise.all(quorum.nodes.map((node) => readersOn(node, 'order')))).every((all) => all.length === 2),
    {
      what: 'every node has both',
    },
  )
  // One node has lost one of them, and names the other one.
  await quorum.nodes[0]!.cli('ZREM', 'ringfence:readers:{order}', `shared:${leases[1]!.owner}`)
  await quorum.nodes[0]!.cli('SET', 'order', `shared:${leases[0]!.owner}`, 'PX', '20000')
  const owners = (await shown(one, 'order')).map(({ owner, shared, token }) => ({ owner, shared, token }))
  expect(owners).toHaveLength(2)
  for (const { owner, token } of leases) expect(owners).toContainEqual({ owner, shared: true, token })
  // A refusal knows that it is held, and is no split vote.
  await expect(one.acquire('order', { wait: 0 })).rejects.toMatchObject({ code: 'HELD' })
  // The next extension puts it back.
  await leases[1]!.extend()
  await until(async () => (await readersOn(quorum.nodes[0]!, 'order')).length === 2, { what: 'the node has it again' })
  for (const lease of leases) expect(await lease.release()).toBe(true)
  await lockKeysBecome(quorum.nodes, [])
})

test('a node that is flushed costs no reader its lease, and a majority without it lets no writer in', async () => {
  await using quorum = await startQuorum({}, 3)
  const locks = quorum.locks({ ttl: '20s' })
  const lease = await locks.acquire('order', SHARED)
  await lockKeysBecome(quorum.nodes, ['order'])
  await quorum.nodes[0]!.cli('FLUSHALL')
  expect(await quorum.locks().tryAcquire('order')).toBe(null)
  await lease.extend()
  expect(lease.held).toBe(true)
  expect(await lease.release()).toBe(true)
  await lockKeysBecome(quorum.nodes, [])
})

test('what a node grants to a reader after it has given up is given back, and the other readers keep theirs', async () => {
  await using quorum = await startQuorum({}, 3)
  const other = await quorum.locks({ ttl: '20s' }).acquire('order', SHARED)
  await lockKeysBecome(quorum.nodes, ['order'])
  const ports = quorum.nodes.map(({ port }) => port)
  const proxies = await Promise.all(ports.map((port) => startProxy(port)))
  const locks = quorum.locks(
    { ttl: '20s' },
    { requestTimeout: '300ms' },
    proxies.map(({ port }) => port),
  )
  await (await locks.acquire('order', SHARED)).release()
  for (const proxy of proxies.slice(1)) proxy.dropReplies(true)
  await expect(locks.acquire('order', { ...SHARED, wait: 0 })).rejects.toMatchObject({ code: 'QUORUM' })
  for (const proxy of proxies) proxy.dropReplies(false)
  for (const node of quorum.nodes) {
    await until(async () => (await readersOn(node, 'order')).join() === `shared:${other.owner}`, {
      what: 'one is left',
    })
  }
  expect(await other.release()).toBe(true)
  await lockKeysBecome(quorum.nodes, [])
  for (const proxy of proxies) await proxy.close()
})

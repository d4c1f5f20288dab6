import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Redis } from 'ioredis'
import { redisGuard, type RedisGuard } from '../../src/guards/index.ts'
import { addressOf, CLUSTER, SINGLE, type Connected } from '../engines/redis/drivers-clients.ts'
import { startCluster } from '../../harness/servers/redis-cluster.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { freshResource, guardSuite, leaseOf, type Bench } from './suite.ts'

let server: RedisServer
let client: Redis

beforeAll(async () => {
  server = await startRedis()
  client = new Redis({ host: server.host, port: server.port })
})

afterAll(async () => {
  client?.disconnect()
  await server?.stop()
})

const keyOf = (resource: string): string => `{${resource}}:balance`

function bench(): Bench<RedisGuard> {
  return {
    guard: (options) => redisGuard(client, options),
    read: async (resource) => Number((await client.get(keyOf(resource))) ?? 0),
    async write(guard, lease, value) {
      const script = `for _, key in ipairs(KEYS) do redis.call('set', key, ARGV[1]) end`
      expect(await guard.run(lease, script, { keys: lease.resources.map(keyOf), args: [String(value)] })).toBeNull()
    },
  }
}

guardSuite('redis, a script', bench)

guardSuite(
  'redis, set',
  () => ({
    ...bench(),
    async write(guard, lease, value) {
      // Each value with its own fence, as far as one command goes.
      for (const resource of [...lease.resources].sort()) {
        await guard.set({ ...lease, resources: [resource] }, keyOf(resource), String(value))
      }
    },
  }),
  { oneByOne: true },
)

describe.each(Object.entries(SINGLE))('%s', (_name, connect) => {
  test('sets, deletes and runs scripts guarded, with a token above 2^53', async () => {
    const { client: driver, close } = await connect(server)
    const guard = redisGuard(driver)
    const resource = freshResource()
    const [newer, older] = [leaseOf(resource, 2n ** 53n + 1n), leaseOf(resource, 2n ** 53n)]
    const stale = { code: 'STALE_TOKEN', token: 2n ** 53n, seen: 2n ** 53n + 1n }
    await guard.set(newer, keyOf(resource), 'new')
    await expect(guard.set(older, keyOf(resource), 'old')).rejects.toMatchObject(stale)
    await expect(guard.delete(older, keyOf(resource))).rejects.toMatchObject(stale)
    await expect(guard.run(older, 'return 1')).rejects.toMatchObject(stale)
    expect(await client.get(keyOf(resource))).toBe('new')
    expect(await guard.run(newer, `return {KEYS[1], ARGV[1]}`, { keys: ['k'], args: ['a'] })).toEqual(['k', 'a'])
    expect(await guard.delete(newer, keyOf(resource), 'no such key')).toBe(1)
    await expect(guard.enter(older)).rejects.toMatchObject(stale)
    await close()
  })
})

describe('a script of our own', () => {
  test('sees its own KEYS and ARGV, and gives what it gives', async () => {
    const guard = redisGuard(client)
    const lease = leaseOf([freshResource(), freshResource()], 1n)
    const input = { keys: ['a', 'b'], args: ['x', 'y', 'z'] }
    expect(await guard.run(lease, 'return {#KEYS, KEYS[2], #ARGV, ARGV[3]}', input)).toEqual([2, 'b', 3, 'z'])
    expect(await guard.run(lease, 'return nil')).toBeNull()
    expect(await guard.run(lease, 'return false')).toBeNull()
    expect(await guard.run(lease, "return redis.status_reply('FINE')")).toBe('FINE')
    expect(await guard.run(lease, 'return 7 -- a comment at the end')).toBe(7)
    expect(await guard.run(lease, '')).toBeNull()
  })

  test('that fails is its own error, with its own line number', async () => {
    const guard = redisGuard(client)
    const lease = leaseOf(freshResource(), 1n)
    await expect(guard.run(lease, "return redis.error_reply('MINE of my own')")).rejects.toThrow('MINE of my own')
    await expect(guard.run(lease, 'local a = 1\nlocal b = 2\nreturn nothing.at.all')).rejects.toThrow(/:3:/)
    await expect(guard.run(lease, '#!lua\nreturn 1')).rejects.toThrow('without a first line of #!')
  })
})

test('the value of set ends with its ttl, and the fence does not', async () => {
  const guard = redisGuard(client)
  const resource = freshResource()
  await guard.set(leaseOf(resource, 1n), keyOf(resource), 'v', { ttl: '1h' })
  expect(await client.pttl(keyOf(resource))).toBeGreaterThan(3_500_000)
  expect(await client.get(`ringfence:guard:{${resource}}`)).toBe('1 redis:')
  expect(await client.pttl(`ringfence:guard:{${resource}}`)).toBe(-1)
})

test('something else in the place of a fence is an error, not a pass', async () => {
  const guard = redisGuard(client)
  const [text, list] = [freshResource(), freshResource()]
  await client.set(`ringfence:guard:{${text}}`, 'hello')
  await client.rpush(`ringfence:guard:{${list}}`, 'hello')
  await expect(guard.enter(leaseOf(text, 1n))).rejects.toThrow('is not a fence')
  await expect(guard.enter(leaseOf(list, 1n))).rejects.toThrow('WRONGTYPE')
})

test('the key of the lock itself is refused, whatever its prefix', async () => {
  const guard = redisGuard(client)
  const refused = /RangeError: key: expected another one than that of the lock itself, got 'mine:order'/
  const lease = { resources: ['order'], token: 1n, engine: 'redlock:mine:' }
  await expect(guard.set(lease, 'mine:order', 'paid').catch(String)).resolves.toMatch(refused)
  await expect(guard.delete(lease, 'other', 'mine:order').catch(String)).resolves.toMatch(refused)
  await guard.set(lease, 'order', 'paid')
})

test('guards of different prefixes have fences of their own', async () => {
  const resource = freshResource()
  await redisGuard(client, { prefix: 'one:' }).enter(leaseOf(resource, 2n))
  await redisGuard(client, { prefix: 'two:' }).enter(leaseOf(resource, 1n))
  expect(() => redisGuard(client, { prefix: '{x}' })).toThrow('prefix: expected a string without braces')
})

test('arguments that can not be are refused by name', async () => {
  const guard = redisGuard(client)
  const lease = leaseOf(freshResource(), 1n)
  await expect(guard.set(lease, 'k', 1 as never)).rejects.toThrow('value: expected a string, got 1')
  await expect(guard.set(lease, 1 as never, 'v')).rejects.toThrow('key: expected strings')
  await expect(guard.set(lease, 'k', 'v', { px: 1 } as never)).rejects.toThrow("expected ttl, got 'px'")
  await expect(guard.delete(lease)).rejects.toThrow('keys: expected at least one')
  await expect(guard.run(lease, 'return 1', { keys: [1] as never })).rejects.toThrow('keys: expected strings')
  await expect(guard.run(lease, 7 as never)).rejects.toThrow('script: expected')
  expect(() => redisGuard('redis://localhost')).toThrow('client: expected an ioredis')
  expect(() => redisGuard(closed())).toThrow('it is closed')
})

function closed(): Redis {
  const redis = new Redis({ host: server.host, port: server.port, lazyConnect: true })
  redis.disconnect()
  return redis
}

test('a server that does not answer is given up in time', async () => {
  await using frozen = await startRedis()
  const own = new Redis({ host: frozen.host, port: frozen.port })
  await redisGuard(own).enter(leaseOf('a', 1n))
  await frozen.freeze()
  await expect(redisGuard(own, { requestTimeout: 200 }).set(leaseOf('a', 1n), 'k', 'v')).rejects.toMatchObject({
    code: 'GUARD',
    transient: true,
    message: expect.stringContaining('no answer within 200 ms; whether it took effect is unknown'),
  })
  await frozen.thaw()
  own.disconnect()
})

test('on a Cluster, a fence and its keys share a slot, or the error says how they would', async () => {
  await using cluster = await startCluster()
  const names = ['ioredis', 'node-redis']
  const connected: Connected[] = []
  for (const name of names) connected.push(await CLUSTER[name]!(cluster.nodes.map(addressOf)))
  for (const [index, { client: driver }] of connected.entries()) {
    const guard = redisGuard(driver)
    const resource = `account:${index}`
    await guard.set(leaseOf(resource, 2n), `{${resource}}:balance`, '1')
    await expect(guard.set(leaseOf(resource, 1n), `{${resource}}:balance`, '2')).rejects.toMatchObject({ seen: 2n })
    await guard.enter(leaseOf(['{bank}:1', '{bank}:2'], BigInt(index + 1)))
    await expect(guard.set(leaseOf(resource, 2n), 'elsewhere', '1')).rejects.toThrow(`a key '{${resource}}:value'`)
    await expect(guard.enter(leaseOf(['a', 'b'], 1n))).rejects.toThrow('must share a hash slot')
  }
  for (const { close } of connected) await close()
})

test('a server that is down is a GuardError with the reason', async () => {
  const nowhere = new Redis({ host: '127.0.0.1', port: 1 })
  nowhere.on('error', () => undefined)
  const guard = redisGuard(nowhere, { requestTimeout: '300ms' })
  await expect(guard.enter(leaseOf(freshResource(), 1n))).rejects.toMatchObject({
    code: 'GUARD',
    message: expect.stringMatching(/ECONNREFUSED/) as string,
  })
  nowhere.disconnect()
})

test('a client that was closed is a GuardError for which trying again cannot help', async () => {
  const closed = client.duplicate()
  const guard = redisGuard(closed)
  await closed.quit()
  await expect(guard.enter(leaseOf(freshResource(), 1n))).rejects.toMatchObject({ code: 'GUARD', transient: false })
})

test('set without a lease says that it lacks a lease', async () => {
  const without = redisGuard(client).set('key' as never, 'value', undefined as never)
  await expect(without).rejects.toThrow('lease: expected a lease, the first argument')
})

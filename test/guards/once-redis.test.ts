import { readFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { redisGuard, type RedisGuard } from '../../src/guards/index.ts'
import { startProxy } from '../../harness/faults/proxy.ts'
import { startCluster } from '../../harness/servers/redis-cluster.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { addressOf, CLUSTER, SINGLE } from '../engines/redis/drivers-clients.ts'
import { freshKey, onceSuite, runsSuite, type OnceBench } from './once-suite.ts'
import { freshResource, leaseOf } from './suite.ts'

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

/** It checks first and writes last, because what was written stays written. */
const ADD = `
if ARGV[2] ~= '' then return redis.error_reply(ARGV[2]) end
redis.call('incr', KEYS[1])
if ARGV[1] ~= '' then return cjson.decode(ARGV[1]) end`

const counterKey = (counter: string): string => `{${counter}}:counter`
const recordOf = (key: string): string => `ringfence:guard:once:${key}`

function bench(): OnceBench<RedisGuard> {
  return {
    guard: (options) => redisGuard(client, options),
    add(guard, lease, key, { counter, result, failure = '' }, options) {
      const text = result === undefined ? '' : JSON.stringify(result)
      return guard.once(lease, key, { script: ADD, keys: [counterKey(counter)], args: [text, failure] }, options)
    },
    read: async (counter) => Number((await client.get(counterKey(counter))) ?? 0),
    has: async (key) => (await client.exists(recordOf(key))) > 0,
    async endsAt(key) {
      const at = await client.pexpiretime(recordOf(key))
      return at === -1 ? undefined : at
    },
    end: async (key) => {
      await client.pexpire(recordOf(key), 1)
    },
    async through({ port }, options) {
      const far = new Redis({ host: '127.0.0.1', port }).on('error', () => undefined)
      return { guard: redisGuard(far, options), close: async () => far.disconnect() }
    },
    port: () => server.port,
    commit: 'ringfence:guard:once:',
  }
}

onceSuite('redis', bench)
runsSuite('redis', (options) => redisGuard(client, options))

test('a driver that loses the answer and sends the script again still hears that it ran', async () => {
  await using proxy = await startProxy(server.port)
  const { add, through } = bench()
  const { guard, close } = await through(proxy)
  const [counter, key] = [freshResource(), freshKey()]
  await add(guard, leaseOf(counter, 1n), freshKey(), { counter: 'any' })
  proxy.cutOnNextReply('ringfence:guard:once:')
  expect(await add(guard, leaseOf(counter, 1n), key, { counter, result: 1 })).toMatchObject({ ran: true, value: 1 })
  expect(proxy.lostReplies).toBe(1)
  await close()
})

test('a driver that does not send it again: a transient error, and a repeat finds the result', async () => {
  await using proxy = await startProxy(server.port)
  const far = new Redis({ host: '127.0.0.1', port: proxy.port, maxRetriesPerRequest: 0 }).on('error', () => undefined)
  const { add, read } = bench()
  const [guard, counter, key] = [redisGuard(far), freshResource(), freshKey()]
  await add(guard, leaseOf(counter, 1n), freshKey(), { counter: 'any' })
  proxy.cutOnNextReply('ringfence:guard:once:')
  await expect(add(guard, leaseOf(counter, 1n), key, { counter, result: 1 })).rejects.toMatchObject({
    code: 'GUARD',
    transient: true,
  })
  expect(await add(redisGuard(client), leaseOf(counter, 1n), key, { counter })).toMatchObject({ ran: false, value: 1 })
  expect(await read(counter)).toBe(1)
  far.disconnect()
})

/** Of a first call and of a repeat. */
async function returning(script: string): Promise<unknown> {
  const [guard, lease, key] = [redisGuard(client), leaseOf(freshResource(), 1n), freshKey()]
  const first = await guard.once(lease, key, { script })
  expect(first.ran).toBe(true)
  expect(await guard.once(lease, key, { script })).toEqual({ ...first, ran: false })
  return first.value
}

describe('what a script returns', () => {
  test('becomes JSON', async () => {
    expect(await returning("return {a = {1, 'x', false}}")).toEqual({ a: [1, 'x', false] })
    expect(await returning("return redis.call('set', 'any', '1')")).toBe('OK')
    expect(await returning('return cjson.null')).toBeNull()
    expect(await returning('return nil')).toBeUndefined()
    expect(await returning("return redis.call('incrby', 'sum', 7)")).toBe(7)
    expect(await returning('return {KEYS[1] == nil, #ARGV}')).toEqual([true, 0])
    expect(await returning('return {}')).toEqual({})
    expect(await returning('return 12345678901234')).toBe(12_345_678_901_234)
    expect(await returning('return 123456789012345')).not.toBe(123_456_789_012_345)
    expect(await returning("return '123456789012345'")).toBe('123456789012345')
  })

  test('or cannot be kept: it has taken effect, does not run again, and every call says so', async () => {
    const [guard, lease] = [redisGuard(client), leaseOf(freshResource(), 1n)]
    for (const [script, why] of [
      ["redis.call('incr', 'odd') return function() end", 'function'],
      ["redis.call('incr', 'odd') return string.rep('x', 65535)", 'expected at most 65536 bytes of JSON, got 65537'],
    ] as const) {
      const [key, before] = [freshKey(), Number(await client.get('odd'))]
      for (const _ of [1, 2]) {
        await expect(guard.once(lease, key, { script })).rejects.toMatchObject({
          code: 'GUARD',
          transient: false,
          message: expect.stringMatching(new RegExp(`'${key}' took effect and will not run again.*${why}`)) as string,
        })
      }
      expect(Number(await client.get('odd'))).toBe(before + 1)
    }
  })

  test('that fails is its own error, with its own line number', async () => {
    const [guard, lease] = [redisGuard(client), leaseOf(freshResource(), 1n)]
    const script = 'local a = 1\nlocal b = 2\nreturn nothing.at.all'
    await expect(guard.once(lease, freshKey(), { script })).rejects.toThrow(/:3:/)
  })
})

describe.each(Object.entries(SINGLE))('%s', (_name, connect) => {
  test('once, and runs', async () => {
    const { client: driver, close } = await connect(server)
    const [guard, resource, key] = [redisGuard(driver), freshResource(), freshKey()]
    const work = { script: 'return {n = redis.call("incr", KEYS[1])}', keys: [counterKey(resource)] }
    expect(await guard.once(leaseOf(resource, 1n), key, work)).toMatchObject({ ran: true, value: { n: 1 }, token: 1n })
    expect(await guard.once(leaseOf(resource, 2n), key, work)).toMatchObject({ ran: false, value: { n: 1 }, token: 1n })
    await guard.recordRun({ job: resource, owner: 'o@x', token: 1n, engine: 'redis:', outcome: 'done', tookMs: 3 })
    expect(await guard.runs(resource)).toMatchObject([{ owner: 'o@x', outcome: 'done', tookMs: 3 }])
    await close()
  })
})

test('on a Cluster the key shares the slot of the resource, or the error says how it would', async () => {
  await using cluster = await startCluster()
  const { client: driver, close } = await CLUSTER['ioredis']!(cluster.nodes.map(addressOf))
  const guard = redisGuard(driver)
  const work = { script: 'return redis.call("incr", KEYS[1])', keys: ['{account:7}:n'] }
  const lease = leaseOf('account:7', 1n)
  expect(await guard.once(lease, '{account:7}:charge', work)).toMatchObject({ ran: true, value: 1 })
  expect(await guard.once(lease, '{account:7}:charge', work)).toMatchObject({ ran: false, value: 1 })
  await expect(guard.once(lease, 'charge', work)).rejects.toThrow("a key '{account:7}:value'")
  await guard.recordRun({ job: 'nightly', owner: 'o@x', token: 1n, engine: 'redis:', outcome: 'done', tookMs: 3 })
  expect(await guard.runs('nightly')).toHaveLength(1)
  await close()
})

/** The commands that docs/kinds/once.md names, besides those of every guard. */
const ACL = {
  once: ['+hmget', '+hset', '+pexpire', '+time'],
  runs: ['+hexists', '+hset', '+hget', '+hdel', '+zadd', '+zrange', '+zrevrange', '+zrem', '+time'],
}

function bounded(guard: RedisGuard): Promise<unknown> {
  return guard.once(leaseOf(freshResource(), 1n), freshKey(), { script: '' }, { keep: '1d' })
}

test('a user of an ACL needs the commands that the documents name', async () => {
  const page = readFileSync(new URL('../../docs/kinds/once.md', import.meta.url), 'utf8').replaceAll(/\s+/g, ' ')
  for (const commands of Object.values(ACL)) expect(page).toContain(`\`${commands.join(' ')}\``)
  const opened: Redis[] = []
  const as = async (username: string, commands: readonly string[]): Promise<RedisGuard> => {
    const rights = ['~ringfence:guard:*', '+eval', '+evalsha', '+get', '+set', ...commands]
    await client.call('ACL', 'SETUSER', username, 'on', 'nopass', ...rights)
    const login = { username, password: 'any', enableReadyCheck: false }
    const own = new Redis({ host: server.host, port: server.port, ...login })
    opened.push(own)
    return redisGuard(own)
  }
  expect(await bounded(await as('effects', ACL.once))).toMatchObject({ ran: true })
  const [historian, job] = [await as('historian', ACL.runs), freshResource()]
  await historian.recordRun({ job, owner: 'o@x', token: 1n, engine: 'redis:', outcome: 'done', tookMs: 1 })
  expect(await historian.runs(job)).toHaveLength(1)
  for (const missing of ACL.once) {
    const guard = await as(
      `without${missing}`,
      ACL.once.filter((command) => command !== missing),
    )
    await expect(bounded(guard)).rejects.toThrow(/permission|can't run|NOPERM|ACL/i)
  }
  for (const own of opened) own.disconnect()
})

test.each(ACL.once)(
  'a user who lacks %s cannot have a script run, whose effect would be there again with each repeat',
  async (lacking) => {
    const [username, resource] = [`lacks${lacking}`, freshResource()]
    const rights = ['allkeys', '+@all', lacking.replace('+', '-')]
    await client.call('ACL', 'SETUSER', username, 'on', 'nopass', ...rights)
    const login = { username, password: 'any', enableReadyCheck: false }
    const own = new Redis({ host: server.host, port: server.port, ...login })
    const work = { script: "return redis.call('incr', KEYS[1])", keys: [counterKey(resource)] }
    await expect(redisGuard(own).once(leaseOf(resource, 1n), freshKey(), work, { keep: '1d' })).rejects.toThrow(
      /can't run|no permissions|lacks|may not record/i,
    )
    own.disconnect()
    expect(await client.get(counterKey(resource))).toBeNull()
  },
)

test('work that is no script is refused by name', async () => {
  const [guard, lease] = [redisGuard(client), leaseOf(freshResource(), 1n)]
  await expect(guard.once(lease, 'k', (() => 1) as never)).rejects.toThrow(
    'work: expected { script, keys, args }, which is one step on the server, got a function',
  )
  await expect(guard.once(lease, 'k', { script: '#!lua' })).rejects.toThrow('script: expected')
  await expect(guard.once(lease, 'k', { script: '', keys: [1] as never })).rejects.toThrow('keys: expected strings')
})

test('the key of the lock itself is refused', async () => {
  const lease = { resources: ['order'], token: 1n, engine: 'redlock:mine:' }
  const work = { script: '', keys: ['mine:order'] }
  await expect(redisGuard(client).once(lease, 'k', work)).rejects.toThrow('that of the lock itself')
})

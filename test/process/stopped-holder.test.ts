import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { startRedis } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { isType, startSetup, type Setup } from './setup.ts'

const TTL_MS = 2000
const drivers = ['ioredis', 'node-redis']

/** The protected store: a value, and the highest token that it has seen. Equal tokens pass, lower ones do not. */
const CHECKED = `local seen = tonumber(redis.call('hget', KEYS[1], 'token') or 0)
if tonumber(ARGV[2]) < seen then return 0 end
redis.call('hset', KEYS[1], 'value', ARGV[1], 'token', ARGV[2])
return 1`

const UNCHECKED = `redis.call('hset', KEYS[1], 'value', ARGV[1], 'token', ARGV[2])
return 1`

test.concurrent.each([
  ['a store that checks tokens rejects', CHECKED, { accepted: false, value: 'of the second' }],
  ['a store that does not check takes', UNCHECKED, { accepted: true, value: 'late' }],
] as const)(
  '%s the late write of a holder that was stopped past its ttl',
  async (_store, script, { accepted, value }) => {
    await using setup = await startSetup()
    await using store = await startRedis()
    using client = disposable(new Redis({ host: store.host, port: store.port }))
    const env = { TTL_MS: String(TTL_MS), STORE_PORT: String(store.port), STORE_SCRIPT: script }
    const holder = setup.worker('holder.mjs', 'ioredis', env)
    const first = await holder.next(isType('acquired'), { withinMs: 40_000 })
    await holder.pause()

    const second = await setup.locks.acquire('order', { wait: '30s' })
    expect(second.token).toBeGreaterThan(BigInt(String(first['token'])))
    expect(await client.redis.eval(script, 1, 'order', 'of the second', String(second.token))).toBe(1)
    holder.send({ value: 'late' })
    await holder.resume()

    expect(await holder.next(isType('written'))).toMatchObject({ accepted, held: false })
    expect(await client.redis.hget('order', 'value')).toBe(value)
    expect(second.held).toBe(true)
  },
)

test.concurrent.each(drivers)(
  'a process that was stopped past its ttl knows it with its first look, and its signal aborts; %s',
  async (driver) => {
    await using setup = await startSetup()
    const holder = setup.worker('holder.mjs', driver, { TTL_MS: String(TTL_MS) })
    await holder.next(isType('acquired'), { withinMs: 40_000 })
    // A node that is still being let in would be asked for its vote after the pause.
    await until(() => isOnAll(setup, 'order'), { what: 'every node has it' })
    await holder.pause()
    await until(() => isFree(setup, 'order'), { what: 'the lease was over on every node' })
    holder.send({ look: true })
    await holder.resume()
    expect(await holder.next(isType('woken'))).toEqual({
      type: 'woken',
      held: false,
      remainingMs: 0,
      aborted: true,
      reason: 'expired',
    })
    // It does not try to take back what it has lost.
    expect(await isFree(setup, 'order')).toBe(true)
    await using next = await setup.locks.acquire('order', { wait: 0 })
    expect(next.held).toBe(true)
  },
)

async function isOnAll({ clients }: Setup, resource: string): Promise<boolean> {
  const found = await Promise.all(clients.map((client) => client.exists(resource)))
  return found.every((count) => count === 1)
}

async function isFree({ clients }: Setup, resource: string): Promise<boolean> {
  const found = await Promise.all(clients.map((client) => client.exists(resource)))
  return found.every((count) => count === 0)
}

function disposable(redis: Redis): Disposable & { redis: Redis } {
  return { redis, [Symbol.dispose]: () => redis.disconnect() }
}

import { describe, expect, test } from 'vitest'
import { redis, type RedisOptions } from '../../../src/engines/redis/index.ts'
import { EngineError } from '../../../src/errors.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startSentinel, type SentinelSetup } from '../../../harness/servers/sentinel.ts'
import { until } from '../../../harness/until.ts'
import { SENTINEL } from './drivers-clients.ts'
import { lockKeysBecome } from './faults-quorum.ts'

const drivers = ['ioredis', 'node-redis']

test.concurrent.each(drivers)(
  'with replicas: 1 and no replica in reach nothing is granted, and nothing stays; %s',
  async (driver) => {
    await using setup = await startSentinel()
    await using one = await locksOf(setup, driver, { replicas: 1 })
    const before = await one.locks.acquire('order')
    expect(await before.release()).toBe(true)
    const held = await one.locks.acquire('held', { renew: false })
    await setup.cutReplication()

    const refused = one.locks.acquire('order', { wait: 0 })
    await expect(refused).rejects.toThrow(/0 replicas have acknowledged it within \d+ ms, and 1 must/)
    await expect(refused).rejects.toBeInstanceOf(EngineError)
    const primary = await setup.primary()
    // Before its ttl is over.
    await lockKeysBecome([primary], ['held'])
    // Not to be proved is not lost.
    await expect(held.extend()).rejects.toThrow(/0 replicas have acknowledged it/)
    expect(held.held).toBe(true)

    await setup.healReplication()
    const after = await one.locks.acquire('order', { wait: '20s' })
    expect(after.token).toBeGreaterThan(before.token)
    await held.extend()
  },
)

describe.concurrent('a primary dies before its replicas have the lease', () => {
  test('without replicas the lease is lost in the failover, and the next holder has the higher token', async () => {
    await using setup = await startSentinel()
    await using before = await locksOf(setup, 'ioredis')
    await setup.cutReplication()
    const first = await before.locks.acquire('order', { renew: false })
    await setup.newPrimary(await setup.killPrimary())

    await using after = await locksOf(setup, 'ioredis')
    const second = await after.locks.acquire('order', { wait: '20s' })
    expect([first.held, second.held]).toEqual([true, true])
    expect(second.token).toBeGreaterThan(first.token)
    // What a store does that checks tokens.
    const store = new Map([['order', second.token]])
    expect(first.token >= store.get('order')!).toBe(false)
  })

  test('with replicas the lease was never granted', async () => {
    await using setup = await startSentinel()
    await using before = await locksOf(setup, 'ioredis', { replicas: 1 })
    await setup.cutReplication()
    await expect(before.locks.acquire('order', { wait: 0 })).rejects.toThrow('0 replicas have acknowledged it')
    await setup.newPrimary(await setup.killPrimary())
    await using after = await locksOf(setup, 'ioredis')
    await using only = await after.locks.acquire('order', { wait: '20s' })
    expect(only.held).toBe(true)
  })
})

test.concurrent('a lease that the replicas have outlives the primary', async () => {
  await using setup = await startSentinel()
  await using before = await locksOf(setup, 'ioredis', { replicas: 2, within: '5s' })
  const first = await before.locks.acquire('order', { ttl: '60s', renew: false })
  await setup.newPrimary(await setup.killPrimary())

  await using after = await locksOf(setup, 'ioredis')
  const second = await until(() => after.locks.tryAcquire('order').then((lease) => ({ lease })), {
    what: 'the new primary answers',
    withinMs: 20_000,
  })
  // Not more than this: sentinels in a hurry sometimes promote both replicas, one after the other.
  expect(second.lease).toBeNull()
  expect(first.held).toBe(true)
})

interface OwnLocks extends AsyncDisposable {
  readonly locks: Locks
}

async function locksOf(setup: SentinelSetup, driver: string, options: RedisOptions = {}): Promise<OwnLocks> {
  const connected = await SENTINEL[driver]!(setup.name, setup.sentinels)
  const locks = createLocks(redis(connected.client, { requestTimeout: '1s', within: '500ms', ...options }))
  return {
    locks,
    async [Symbol.asyncDispose]() {
      await locks.close()
      await connected.close()
    },
  }
}

import { createRequire } from 'node:module'
import { Redis } from 'ioredis'
// @ts-expect-error -- it has no types
import Redlock4 from 'redlock4'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import Redlock, { LockError, type Version4Lock } from '../../src/redlock/index.ts'

let server: RedisServer
let client: Redis

beforeAll(async () => {
  server = await startRedis()
  client = new Redis({ host: '127.0.0.1', port: server.port })
})
afterAll(async () => {
  client.disconnect()
  await server.stop()
})

test('a lock is taken, extended in place and unlocked, by promises', async () => {
  const redlock = new Redlock([client])
  const lock = await redlock.lock('a', 10_000)
  expect([lock.resource, lock.attempts]).toEqual([['a'], 1])
  expect(await client.get('a')).toBe(lock.value)
  const before = lock.expiration
  expect(await lock.extend(20_000)).toBe(lock)
  expect(lock.expiration).toBeGreaterThan(before)
  expect(lock.fencingToken).toBeGreaterThan(0n)
  await redlock.unlock(lock)
  expect([await client.exists('a'), lock.expiration]).toEqual([0, 0])
  await expect(lock.unlock()).rejects.toThrow('Unable to fully release the lock on resource "a".')
  await expect(lock.extend(1000)).rejects.toThrow('because the lock has already expired')
})

test('a lock has a greater token than every lock before it, and keeps it when it is extended', async () => {
  const redlock = new Redlock([client])
  const first = await redlock.lock(['h', 'i'], 10_000)
  const { fencingToken } = first
  await first.extend(20_000)
  expect(first.fencingToken).toBe(fencingToken)
  await first.unlock()
  const second = await redlock.lock('h', 10_000)
  expect(second.fencingToken).toBeGreaterThan(fencingToken)
  await second.unlock()
  const third = await new Redlock([client]).acquire(['i'], 10_000)
  expect(third.fencingToken).toBeGreaterThan(fencingToken)
  await third.release()
})

test('a ttl that is too short is named as redlock 4 names it, and the lock stays as it is', async () => {
  const redlock = new Redlock([client])
  const tooShort = 'ttl: expected at least 50 ms, got 20; use 50 or more'
  await expect(redlock.lock('j', 20)).rejects.toThrow(tooShort)
  const lock = await redlock.lock('j', 10_000)
  await expect(lock.extend(20)).rejects.toThrow(tooShort)
  const told = await new Promise<Error | null>((resolve) => void lock.extend(20, resolve).catch(() => undefined))
  expect(told).toMatchObject({ name: 'RangeError', message: tooShort })
  await lock.unlock()
  expect(await client.exists('j')).toBe(0)
})

test('and by callbacks', async () => {
  const redlock = new Redlock([client], { retryCount: 1, retryDelay: 10 })
  const lock = await new Promise<Version4Lock>((resolve, reject) => {
    const done = (error: Error | null, lock?: Version4Lock): void => (error === null ? resolve(lock!) : reject(error))
    void redlock.lockWithOptions(['b', 'c'], 10_000, { retryCount: 0 }, done)
  })
  const error = await new Promise<Error | null>(
    (resolve) => void redlock.lock('c', 1000, resolve).catch(() => undefined),
  )
  expect(error).toBeInstanceOf(LockError)
  expect(Reflect.get(Redlock, 'LockError')).toBe(LockError)
  expect(error).toMatchObject({ message: 'Exceeded 1 attempts to lock the resource "c".', attempts: 2 })
  await new Promise<void>((resolve) => void lock.unlock(() => resolve()))
  expect(await client.exists('b', 'c')).toBe(0)
})

test('its settings and servers can be read, and locks go to the calls of the instance', async () => {
  const options = { driftFactor: 0.02, retryCount: 1, retryDelay: 10, retryJitter: 5 }
  const [real, redlock] = [new Redlock4([client], options), new Redlock([client], options)]
  for (const name of ['servers', 'driftFactor', 'retryCount', 'retryDelay', 'retryJitter'] as const)
    expect(redlock[name]).toEqual(real[name])
  const lock = await redlock.acquireWithOptions('f', 10_000, { retryCount: 0 })
  const before = lock.expiration
  expect(await redlock.extend(lock, 20_000)).toBe(lock)
  expect(lock.expiration).toBeGreaterThan(before)
  const extended = new Promise((resolve) => void redlock.extend(lock, 30_000, (...told) => resolve(told)))
  expect(await extended).toEqual([null, lock])
  expect(await client.pttl('f')).toBeGreaterThan(20_000)
  await new Promise<void>((resolve) => void redlock.release(lock, () => resolve()))
  expect(await client.exists('f')).toBe(0)
  await expect(redlock.release(lock)).rejects.toThrow('Unable to fully release the lock on resource "f".')
})

test('quit tells a callback', async () => {
  const own = new Redis({ host: '127.0.0.1', port: server.port })
  const redlock = new Redlock([own])
  const quit = (): Promise<unknown> => new Promise((resolve) => void redlock.quit(resolve))
  expect([await quit(), own.status]).toEqual([null, 'end'])
  expect(await quit()).toMatchObject({ message: 'Connection is closed.' })
})

test.each(['redlock 4', 'ringfence/redlock'])(
  "%s: bluebird's using takes a disposer, and unlocks it",
  async (which) => {
    const clients = [client]
    const redlock = (
      which === 'redlock 4' ? new Redlock4(clients, { retryCount: 1 }) : new Redlock(clients, { retryCount: 1 })
    ) as Redlock
    const { using } = createRequire(createRequire(import.meta.url).resolve('redlock4'))('bluebird') as {
      using: <T>(disposer: unknown, work: (lock: Version4Lock) => Promise<T>) => Promise<T>
    }
    const value = await using(redlock.disposer('g', 10_000), async (lock) => {
      expect(await client.get('g')).toBe(lock.value)
      await expect(using(redlock.disposer('g', 1000), async () => 'in')).rejects.toThrow('Exceeded 1 attempts')
      return 'done'
    })
    expect([value, await client.exists('g')]).toEqual(['done', 0])
    const failing = using(redlock.disposer('g', 10_000), () => Promise.reject(new Error('no milk')))
    await expect(failing).rejects.toThrow('no milk')
    expect(await client.exists('g')).toBe(0)
    const told: Error[] = []
    await using(
      redlock.disposer('g', 10_000, (error) => told.push(error)),
      async () => void (await client.del('g')),
    )
    expect(told.map(({ message }) => message)).toEqual(['Unable to fully release the lock on resource "g".'])
  },
)

test('clientError tells what is wrong with a node, and not that somebody has a lock', async () => {
  const redlock = new Redlock([client], { retryCount: 0 })
  const errors: Error[] = []
  redlock.on('clientError', (error: Error) => errors.push(error))
  const lock = await redlock.lock('d', 10_000)
  await expect(redlock.lock('d', 10_000)).rejects.toThrow(LockError)
  expect(errors).toEqual([])
  await lock.unlock()
  await client.hset('e', 'not', 'a lock')
  await expect(redlock.lock('e', 10_000)).rejects.toThrow(LockError)
  expect(errors.map(({ message }) => message)).toEqual([expect.stringContaining('WRONGTYPE')])
})

import { Redis } from 'ioredis'
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

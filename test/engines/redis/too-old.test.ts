import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import type { Group } from '../../../harness/group.ts'
import { createLocks } from '../../../src/index.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'

const TOO_OLD = 'this server is older than Redis 6.2 and has no SET with GET: run Redis 7 or Valkey, or later'

let group: Group<RedisServer>
let clients: Redis[]

beforeAll(async () => {
  vi.stubEnv('RINGFENCE_USE_REDIS', 'redis-6')
  group = await startRedisNodes(3)
  clients = group.nodes.map(({ port }) => new Redis({ host: '127.0.0.1', port }))
})
afterAll(async () => {
  for (const client of clients) client.disconnect()
  await group.stop()
  vi.unstubAllEnvs()
})

/** The servers may have been told other things; no lock, counter, line or reader is left. */
const keys = async (): Promise<string[]> => {
  const all = await Promise.all(clients.map((client) => client.keys('*')))
  return all.flat().filter((key) => key !== 'ringfence:stamp')
}

test.each([
  ['one', {}],
  ['shared', { shared: true }],
])('on Redis 6.0 no lease is granted, and the error says which version it needs: %s', async (_what, options) => {
  expect(await clients[0]!.info('server')).toContain('redis_version:6.0.')
  const locks = createLocks(redis(clients[0]!))
  for (let call = 0; call < 2; call++) {
    const error = await locks.acquire('a', options).catch((error: unknown) => error)
    expect(error).toMatchObject({ code: 'ENGINE', transient: false })
    expect(error).toHaveProperty('message', expect.stringContaining(TOO_OLD))
  }
  await expect(locks.semaphore('pool', 2).tryAcquire()).rejects.toThrow(TOO_OLD)
  await locks.close()
  expect(await keys()).toEqual([])
})

test('nor on a quorum of it', async () => {
  const locks = createLocks(redlock(clients, { restart: 'trust' }))
  const error = await locks.acquire(['a', 'b']).catch((error: unknown) => error)
  expect(error).toMatchObject({ code: 'QUORUM', transient: false })
  expect((error as Error).message).toContain(TOO_OLD)
  await locks.close()
  expect(await keys()).toEqual([])
})

test('the doctor says it, too', async () => {
  const locks = createLocks(redis(clients[0]!))
  const findings = await locks.check()
  expect(findings.find(({ id }) => id === 'redis/version')).toMatchObject({
    severity: 'critical',
    found: expect.stringMatching(/^This is Redis 6\.0\.\d+\.$/) as unknown,
    remedy: 'Run Redis 7 or Valkey, or later.',
  })
  await locks.close()
})

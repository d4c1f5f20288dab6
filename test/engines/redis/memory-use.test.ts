import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { redis } from '../../../src/engines/redis/index.ts'
import { createLocks } from '../../../src/locks.ts'
import { startRedis } from '../../../harness/servers/redis.ts'

/** After collection, twice: what finalizers let go of is only free with the next one. */
function heapBytes(): number {
  globalThis.gc!()
  globalThis.gc!()
  return process.memoryUsage().heapUsed
}

test('100,000 acquisitions leave no growth, and a held lease costs less than 2 kB', async () => {
  await using server = await startRedis()
  const client = new Redis(server.url)
  const locks = createLocks(redis(client, { requestTimeout: '30s' }))
  const sections = async (count: number): Promise<void> => {
    let left = count
    const lane = async (): Promise<void> => {
      while (left-- > 0) await (await locks.acquire(`lane:${left % 500}`, { wait: '60s' })).release()
    }
    await Promise.all(Array.from({ length: 100 }, lane))
  }
  await sections(5000)
  const before = heapBytes()
  await sections(100_000)
  const grown = heapBytes() - before
  // Compiled code and the like come and go by some hundred kB; a leak of 50 bytes a section would be 5 MB.
  expect(grown).toBeLessThan(3_000_000)

  const HELD = 5000
  const start = heapBytes()
  const leases = await Promise.all(Array.from({ length: HELD }, (_, index) => locks.acquire(`held:${index}`)))
  const perLease = (heapBytes() - start) / HELD
  expect(perLease).toBeLessThan(2000)
  expect(leases.every(({ held }) => held)).toBe(true)

  // More at once than a frozen server would be sent: this one answers, so all are released.
  await locks.close()
  const keys = (await server.cli('KEYS', '*')).split('\n').filter((key) => key !== '' && !key.startsWith('ringfence:'))
  expect(keys).toEqual([])
  client.disconnect()
})

import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { redis } from '../../src/engines/redis/index.ts'
import { createLocks } from '../../src/index.ts'
import { startWorker } from '../../harness/child.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'

const file = new URL('workers/waits-once.mjs', import.meta.url)

test('a process that has waited ends by itself once its client is closed, with every driver and without locks.close()', async () => {
  await using server = await startRedis()
  const client = new Redis(server.port)
  const locks = createLocks(redis(client))
  const held = await locks.acquire('order', { ttl: '1m' })
  const drivers = ['ioredis', 'iovalkey', 'node-redis', 'node-redis pool', 'GLIDE']
  const workers = drivers.map((driver) => {
    const worker = startWorker<{ type: string }>(file, { env: { RINGFENCE_PORT: String(server.port), DRIVER: driver } })
    onTestFinished(() => worker[Symbol.asyncDispose]())
    return worker
  })
  const listening = async (): Promise<boolean> =>
    String(await client.call('PUBSUB', 'NUMSUB', 'ringfence:freed:{order}')).endsWith(`,${drivers.length}`)
  await until(listening, { what: 'all of them wait', withinMs: 20_000 })
  await held.release()
  for (const worker of workers) await worker.next(({ type }) => type === 'done', { withinMs: 20_000 })
  const remaining = new Set(drivers)
  for (const [index, { exited }] of workers.entries()) {
    void exited.then((code) => {
      if (code === 0) remaining.delete(drivers[index]!)
    })
  }
  // Each of them has a subscription in use: its connection is not idle and would stay for ever.
  await expect.poll(() => [...remaining], { timeout: 10_000 }).toEqual([])
  await locks.close()
  client.disconnect()
}, 60_000)

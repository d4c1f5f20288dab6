import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { ioredis, redlock, type RedisClient } from '../../../src/engines/redis/index.ts'
import { CONFIRM } from '../../../src/engines/redis/scripts.ts'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks } from '../../../src/locks.ts'
import { startRedisNodes } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

test('a hand-over on which the nodes do not agree is no failure: the lease was ours, and the next one asks again', async () => {
  await using servers = await startRedisNodes(3)
  const [first, second, third] = servers.nodes
  const drivers = servers.nodes.map(({ port }) => new Redis({ port }))
  const clients = drivers.map((driver) => ioredis(driver))
  // The second node loses its key in the moment before it is asked to confirm the number of the first.
  const forgetful: RedisClient = Object.assign(Object.create(clients[1]!) as RedisClient, {
    run: async (command: readonly string[], key?: string) => {
      if (command.includes(CONFIRM.sha) || command.includes(CONFIRM.text)) await second!.cli('DEL', 'a')
      return clients[1]!.run(command, key)
    },
  })
  const events: LockEvent[] = []
  const observe = (event: LockEvent): number => events.push(event)
  const locks = createLocks(redlock([clients[0], forgetful, clients[2]]), { ttl: '30s', wait: '20s', observe })
  const lease = await locks.acquire('a')
  const waiting = locks.acquire('a')
  await until(() => events.some(({ type }) => type === 'waiting'), { what: 'a waiter' })
  await third!.cli('DEL', 'a')
  await first!.cli('SET', 'ringfence:fence:{a}', String(lease.token + 60_000_000n))
  expect(await lease.release()).toBe(true)
  const next = await waiting
  expect(next.token).toBeGreaterThan(lease.token)
  expect(await next.release()).toBe(true)
  await locks.close()
  for (const driver of drivers) driver.disconnect()
})

import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { ioredis, redlock, type RedisClient } from '../../../src/engines/redis/index.ts'
import { createLocks } from '../../../src/locks.ts'
import { Gate } from '../../../harness/scripted-engine.ts'
import { startRedisNodes } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

test('a node that grants a job after the job is done does not keep it for its whole ttl', async () => {
  await using servers = await startRedisNodes(3)
  const drivers = servers.nodes.map(({ port }) => new Redis({ port }))
  const clients = drivers.map((driver) => ioredis(driver))
  const gate = new Gate()
  let isHeldBack = false
  let granted: Promise<unknown> | undefined
  // Its first command about the job arrives after all others, as on a pool of connections or a node without our script.
  const slow: RedisClient = Object.assign(Object.create(clients[2]!) as RedisClient, {
    send: undefined,
    run: async (command: readonly string[], key?: string) => {
      if (isHeldBack || !command.includes('job')) return clients[2]!.run(command, key)
      isHeldBack = true
      await gate.opened
      return (granted = clients[2]!.run(command, key))
    },
  })
  const locks = createLocks(redlock([clients[0], clients[1], slow]), { ttl: '60s' })
  // The nodes are let in and know the scripts.
  await (await locks.acquire('other')).release()
  expect(await locks.once('job', { atLeast: '1s' }, () => 'done')).toEqual({ ran: true, value: 'done' })
  gate.open()
  await until(() => granted !== undefined, { what: 'the late grant' })
  await granted
  await until(async () => (await servers.nodes[2]!.cli('EXISTS', 'job')) === '0', { what: 'the job to be free there' })
  await until(async () => (await locks.once('job', {}, () => 1)).ran, { what: 'the next run' })
  await locks.close()
  for (const driver of drivers) driver.disconnect()
})

test('a node whose grant is heard of after the job is done keeps the job for the rest of its time', async () => {
  await using servers = await startRedisNodes(3)
  const drivers = servers.nodes.map(({ port }) => new Redis({ port }))
  const clients = drivers.map((driver) => ioredis(driver))
  const gate = new Gate()
  let commands = 0
  let answered = 0
  // It grants at once, and its answer comes when the job is done.
  const slow: RedisClient = Object.assign(Object.create(clients[2]!) as RedisClient, {
    send: undefined,
    run: async (command: readonly string[], key?: string) => {
      if (!command.includes('job')) return clients[2]!.run(command, key)
      const isFirst = commands++ === 0
      const reply = await clients[2]!.run(command, key)
      if (isFirst) await gate.opened
      else answered++
      return reply
    },
  })
  const locks = createLocks(redlock([clients[0], clients[1], slow]), { ttl: '60s' })
  await (await locks.acquire('other')).release()
  expect(await locks.once('job', { atLeast: '30s' }, () => 'done')).toEqual({ ran: true, value: 'done' })
  await until(() => answered > 0, { what: 'the rest is set there, too' })
  const before = answered
  gate.open()
  await until(() => answered > before, { what: 'the late answer is followed by a command' })
  const leftMs = Number(await servers.nodes[2]!.cli('PTTL', 'job'))
  expect(leftMs).toBeGreaterThan(0)
  expect(leftMs).toBeLessThanOrEqual(30_000)
  await locks.close()
  for (const driver of drivers) driver.disconnect()
})

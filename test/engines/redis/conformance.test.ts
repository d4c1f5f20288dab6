import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { conformance } from '../../../src/conformance.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { startRedisNodes } from '../../support/servers/redis.ts'

describe('smoke', () => {
  let nodes: Awaited<ReturnType<typeof startRedisNodes>>
  const clients: Redis[] = []
  beforeAll(async () => {
    nodes = await startRedisNodes(5)
    for (const url of nodes.urls) clients.push(new Redis(url))
  })
  afterAll(async () => {
    for (const c of clients) c.disconnect()
    await nodes.stop()
  })
  describe('redis', () => {
    for (const { name, run } of conformance({ engine: () => redis(clients[0]) })) test(name, run)
  })
  describe('redlock', () => {
    for (const { name, run } of conformance({ engine: () => redlock(clients) })) test(name, run)
  })
})

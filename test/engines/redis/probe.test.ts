import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'

let servers: Awaited<ReturnType<typeof startRedisNodes>>
let clients: Redis[]

const clientOf = ({ port }: RedisServer): Redis => new Redis({ port }).on('error', () => undefined)

beforeAll(async () => {
  servers = await startRedisNodes(3)
  clients = servers.nodes.map(clientOf)
})
afterAll(async () => {
  for (const client of clients) client.disconnect()
  await servers.stop()
})

test('a probe tells of each node its round trip and its clock, also when one of them hangs', async () => {
  const engine = redlock(clients)
  const labels = servers.nodes.map(({ port }) => `localhost:${port}`)
  const healthy = await engine.probe!()
  expect(healthy.map(({ node }) => node)).toEqual(labels)
  for (const { roundTripMs, clockOffsetMs, error } of healthy) {
    expect(error).toBe(undefined)
    expect(roundTripMs).toBeGreaterThan(0)
    expect(Math.abs(clockOffsetMs!)).toBeLessThan(2 + roundTripMs!)
  }
  await servers.nodes[1]!.freeze()
  try {
    const [first, hanging, third] = await engine.probe!()
    expect(hanging).toEqual({
      node: labels[1],
      roundTripMs: undefined,
      clockOffsetMs: undefined,
      error: 'no answer within 2000 ms',
    })
    expect([first!.error, third!.error]).toEqual([undefined, undefined])
  } finally {
    await servers.nodes[1]!.thaw()
  }
  await engine.close()
})

test("a probe sees by how much a server's clock is ahead", async () => {
  await using server = await startRedis({ clockShift: true })
  const client = clientOf(server)
  const engine = redis(client)
  server.shiftClock(90_000)
  const [state] = await engine.probe!()
  expect(state!.clockOffsetMs).toBeGreaterThan(89_900 - state!.roundTripMs!)
  expect(state!.clockOffsetMs).toBeLessThan(90_100 + state!.roundTripMs!)
  await engine.close()
  client.disconnect()
})

test('a probe tells how much memory a server uses, may use, and how many keys it has evicted', async () => {
  await using server = await startRedis({ args: ['--maxmemory', '2mb', '--maxmemory-policy', 'allkeys-lru'] })
  const client = clientOf(server)
  const engine = redis(client)
  const [before] = await engine.probe!()
  expect(before!.memory).toMatchObject({ limitBytes: 2 * 1024 * 1024, evictedKeys: 0 })
  for (let key = 0; key < 50; key++) await client.set(`key:${key}`, 'x'.repeat(100_000))
  const [after] = await engine.probe!()
  expect(after!.memory!.evictedKeys).toBeGreaterThan(0)
  expect(after!.memory!.usedBytes).toBeGreaterThan(before!.memory!.usedBytes)
  await engine.close()
  client.disconnect()
  const [unlimited] = await redlock(clients).probe!()
  expect(unlimited!.memory).toEqual({ usedBytes: expect.any(Number), evictedKeys: 0 })
})

test('looking through the leases of a server that hangs is given up in time', async () => {
  const engine = redis(clients[0])
  await servers.nodes[0]!.freeze()
  try {
    const leases = engine.inspect()[Symbol.asyncIterator]()
    await expect(leases.next()).rejects.toThrow(/no answer within \d+ ms/)
  } finally {
    await servers.nodes[0]!.thaw()
  }
  await engine.close()
})

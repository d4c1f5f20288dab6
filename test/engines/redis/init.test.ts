import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { EngineError } from '../../../src/index.ts'
import { startRedisNodes } from '../../../harness/servers/redis.ts'

function connected(urls: readonly string[]): { clients: Redis[] } & Disposable {
  const clients = urls.map((url) => new Redis(url, { maxRetriesPerRequest: 0 }).on('error', () => undefined))
  return { clients, [Symbol.dispose]: () => clients.forEach((client) => client.disconnect()) }
}

test('init stamps the nodes of a new quorum, and leaves them alone when they are in use', async () => {
  await using servers = await startRedisNodes(3)
  using connections = connected(servers.urls)
  const engine = redlock(connections.clients)
  expect(await engine.init!()).toEqual(
    servers.nodes.map(({ port }) => `127.0.0.1:${port}: new, stamped; votes from now on`),
  )
  expect(await engine.init!()).toEqual(servers.nodes.map(({ port }) => `127.0.0.1:${port}: in use, votes`))
  await engine.close()
})

test('init does not let in a node that is new while others are in use: it may stand in for one that has voted', async () => {
  await using servers = await startRedisNodes(3)
  using connections = connected(servers.urls)
  const engine = redlock(connections.clients)
  await engine.init!()
  await servers.nodes[0]!.restart({ empty: true })
  const lines = await engine.init!()
  expect(lines[0]).toMatch(
    /: remembers nothing of this quorum .*: sits out for \d+ s more, and votes by itself after that$/,
  )
  expect(lines.slice(1)).toEqual(servers.nodes.slice(1).map(({ port }) => `127.0.0.1:${port}: in use, votes`))
  await engine.close()
})

test('init stamps nothing when a node can not be asked', async () => {
  await using servers = await startRedisNodes(3)
  using connections = connected(servers.urls)
  const engine = redlock(connections.clients)
  await servers.nodes[2]!.kill()
  await expect(engine.init!()).rejects.toThrow(EngineError)
  expect(await servers.nodes[0]!.cli('EXISTS', 'ringfence:stamp')).toBe('0')
  await engine.close()
})

test('init of one server needs nothing but the server', async () => {
  await using servers = await startRedisNodes(1)
  using connections = connected(servers.urls)
  const engine = redis(connections.clients[0])
  expect(await engine.init!()).toEqual([`127.0.0.1:${servers.nodes[0]!.port}: one server needs nothing`])
  expect(await servers.nodes[0]!.cli('DBSIZE')).toBe('0')
  await engine.close()
})

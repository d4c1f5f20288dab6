import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { postgresGuard, redisGuard } from '../../src/guards/index.ts'
import { createLocks } from '../../src/locks.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedisNodes } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { telemetry } from './telemetry.ts'

let nodes: Awaited<ReturnType<typeof startRedisNodes>>

beforeAll(async () => {
  nodes = await startRedisNodes(5)
})

afterAll(() => nodes?.stop())

function clients(count: number): Redis[] {
  const made = nodes.urls.slice(0, count).map((url) => new Redis(url))
  for (const client of made) client.on('error', () => undefined)
  onTestFinished(() => made.forEach((client) => client.disconnect()))
  return made
}

/** Which nodes a metric is about. */
async function nodesOf(name: string, told: ReturnType<typeof telemetry>): Promise<string[]> {
  const points = await told.points(name)
  return points.map(({ attributes }) => String(attributes['ringfence.node'])).sort()
}

describe('servers', () => {
  test('have a clock offset, memory and evictions once they were probed, and one that does not answer is down', async () => {
    const told = telemetry()
    const locks = createLocks(redlock(clients(5)), { ttl: '10s', observe: told.observe })
    await nodes.nodes[0]!.cli('CONFIG', 'SET', 'maxmemory', '100mb')
    await locks.probe()
    for (const name of ['up', 'clock_offset', 'memory.used', 'evictions'])
      expect(await nodesOf(`ringfence.server.${name}`, told)).toEqual(
        nodes.nodes.map(({ port }) => `127.0.0.1:${port}`).sort(),
      )
    const offsets = (await told.points('ringfence.server.clock_offset')).map(({ value }) => Math.abs(value as number))
    // One machine has one clock. It is read to within half of a round trip.
    expect(Math.max(...offsets)).toBeLessThan(2)
    const [limit] = await told.points('ringfence.server.memory.limit')
    expect(limit).toMatchObject({
      value: 100 * 1024 * 1024,
      attributes: { 'ringfence.engine': 'redlock', 'ringfence.node': `127.0.0.1:${nodes.nodes[0]!.port}` },
    })
    await nodes.nodes[4]!.freeze()
    try {
      await locks.probe()
      const down = (await told.points('ringfence.server.up')).filter(({ value }) => value === 0)
      expect(down.map(({ attributes }) => attributes['ringfence.node'])).toEqual([`127.0.0.1:${nodes.nodes[4]!.port}`])
    } finally {
      await nodes.nodes[4]!.thaw()
    }
    await locks.close()
  })

  test('are probed by the doctor too, where somebody observes', async () => {
    const told = telemetry()
    const locks = createLocks(redis(clients(1)[0]), { ttl: '10s', observe: told.observe })
    await locks.check()
    await locks.close()
    expect(await nodesOf('ringfence.server.clock_offset', told)).toEqual([`127.0.0.1:${nodes.nodes[0]!.port}`])
  })
})

const TRIPS = 'ringfence.node.duration'

describe('round trips', () => {
  test('of a quorum are measured by node and operation', async () => {
    const told = telemetry()
    // All of the nodes, as in the tests below: one that was left out here would sit out there.
    const locks = createLocks(redlock(clients(5)), { ttl: '10s', observe: told.observe })
    const lease = await locks.acquire('one')
    await lease.extend()
    await lease.release()
    await locks.close()
    for (const { port } of nodes.nodes.slice(0, 3)) {
      for (const operation of ['acquire', 'extend', 'release']) {
        const attributes = {
          'ringfence.engine': 'redlock',
          'ringfence.node': `127.0.0.1:${port}`,
          'ringfence.operation': operation,
          'ringfence.outcome': 'answered',
        }
        expect(await told.count(TRIPS, attributes)).toBeGreaterThan(0)
      }
    }
    expect(await told.sum(TRIPS)).toBeGreaterThan(0)
  })

  test('to the only server are not told of: the call itself is one', async () => {
    const told = telemetry()
    const locks = createLocks(redis(clients(1)[0]), { ttl: '10s', observe: told.observe })
    await locks.using('lone', () => undefined)
    await locks.close()
    const names = (await told.metrics()).map(({ descriptor }) => descriptor.name)
    expect(names).not.toContain(TRIPS)
    expect(await told.count('ringfence.acquire.duration', { 'ringfence.engine': 'redis' })).toBe(1)
  })

  test('of a quorum are told node by node: one that is down fails, one that is frozen stays silent', async () => {
    const told = telemetry()
    const engine = redlock(clients(5), { requestTimeout: '300ms' })
    const locks = createLocks(engine, { ttl: '10s', observe: told.observe })
    await locks.using('healthy', () => undefined)
    const [, , , frozen, dead] = nodes.nodes
    const at = (node: { port: number }, outcome: string): Promise<number> =>
      told.count(TRIPS, { 'ringfence.node': `127.0.0.1:${node.port}`, 'ringfence.outcome': outcome })
    for (const node of nodes.nodes) {
      await until(async () => (await at(node, 'answered')) >= 2, { what: `node ${node.port} has answered` })
    }
    expect(await at(frozen!, 'silent')).toBe(0)
    await frozen!.freeze()
    await dead!.kill()
    try {
      await locks.using('ailing', () => undefined)
      await until(async () => (await at(frozen!, 'silent')) >= 2, { what: 'the frozen node is told of as silent' })
      await until(async () => (await at(dead!, 'failed')) + (await at(dead!, 'silent')) >= 2, {
        what: 'the dead node is told of',
      })
      // The lease was had all the same.
      expect(await told.count('ringfence.acquire.duration', { 'ringfence.outcome': 'granted' })).toBe(2)
      expect(await told.count('ringfence.losses')).toBe(0)
    } finally {
      await frozen!.thaw()
      await dead!.restart()
    }
    await locks.close()
    expect(JSON.stringify(await told.metrics())).not.toMatch(/healthy|ailing/)
  })

  test('are not followed when nobody observes', async () => {
    const engine = redlock(clients(3))
    let asked = false
    const observe = engine.observe!.bind(engine)
    Object.assign(engine, { observe: (tell: Parameters<typeof observe>[0]) => ((asked = true), observe(tell)) })
    await using locks = createLocks(engine)
    await locks.using('quiet', () => undefined)
    expect(asked).toBe(false)
  })
})

describe('guards', () => {
  test('of PostgreSQL and Redis report what they refuse to the same observer', async () => {
    await using server = await startPostgres()
    const pool = new Pool({ connectionString: server.url })
    // Its end does not wait for its connections, so that they may hear of the server's.
    pool.on('error', () => undefined)
    const [client] = clients(1)
    const told = telemetry({ resource: (name) => name.split(':')[0]! })
    const { observe } = told
    const locks = createLocks(redis(client), { wait: '5s', observe })
    const guard = postgresGuard(pool, { observe })
    const store = redisGuard(client, { observe })
    const paused = await locks.acquire('report:1', { ttl: '100ms', renew: false })
    const next = await locks.acquire('report:1')
    await guard.enter(next)
    await store.enter(next)
    await expect(guard.transaction(paused, async () => undefined)).rejects.toMatchObject({ code: 'STALE_TOKEN' })
    await expect(store.set(paused, '{report:1}:text', 'old')).rejects.toMatchObject({ code: 'STALE_TOKEN' })
    await expect(guard.enter({ ...refOf(next), engine: 'another' })).rejects.toMatchObject({ code: 'FOREIGN_TOKEN' })
    const rejections = await told.points('ringfence.guard.rejections')
    expect(rejections).toMatchObject([
      { attributes: attributes('postgres', 'stale'), value: 1 },
      { attributes: attributes('redis', 'stale'), value: 1 },
      { attributes: attributes('postgres', 'foreign'), value: 1 },
    ])
    // The paused one had lost its lease, and it was told of as that too.
    expect(await told.count('ringfence.losses', { 'ringfence.reason': 'expired' })).toBe(1)
    await locks.close()
    await pool.end()
  })
})

function attributes(guard: string, reason: string): Record<string, string> {
  return { 'ringfence.guard': guard, 'ringfence.reason': reason, 'ringfence.resource': 'report' }
}

function refOf({ resources, token }: { resources: readonly string[]; token: bigint }): {
  resources: readonly string[]
  token: bigint
} {
  return { resources, token }
}

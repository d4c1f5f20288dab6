import { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { postgres } from '../../src/engines/postgres/index.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { memory } from '../../src/engines/memory.ts'
import { createLocks, type Engine, type LockEvent } from '../../src/index.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedisNodes } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { openPool } from './postgres/clients.ts'

type Sleep = Extract<LockEvent, { type: 'waiting' }>

/** How to make an engine, again and again on the same clients. */
const makers: Record<string, () => Promise<() => Engine>> = {
  async redis() {
    const [client] = await redisClients(1)
    return () => redis(client)
  },
  async redlock() {
    const clients = await redisClients(3)
    return () => redlock(clients)
  },
  async postgres() {
    const server = await startPostgres()
    onTestFinished(() => server.stop())
    const pool = openPool({ connectionString: server.url, max: 4 })
    onTestFinished(() => pool.end())
    return () => postgres(pool)
  },
}

async function redisClients(count: number): Promise<Redis[]> {
  const { nodes, stop } = await startRedisNodes(count)
  onTestFinished(stop)
  const clients = nodes.map(({ url }) => new Redis(url))
  onTestFinished(() => clients.forEach((client) => client.disconnect()))
  return clients
}

describe.each(Object.entries(makers))('%s', (_name, prepare) => {
  test('one engine has one createLocks; two engines on the same clients wake each other', async () => {
    const make = await prepare()
    const engine = make()
    const one = createLocks(engine, { ttl: '30s' })
    onTestFinished(() => one.close())
    expect(() => createLocks(engine)).toThrow(
      /^engine: expected one without locks, got a \w+ engine that was given to createLocks before; share those locks/,
    )
    const events: LockEvent[] = []
    const two = createLocks(make(), { wait: '20s', observe: (event) => void events.push(event) })
    onTestFinished(() => two.close())
    const lease = await one.acquire('order')
    const waiting = two.acquire('order')
    const asleep = await until(
      () => events.find((event) => event.type === 'waiting' && event.atMostMs > 1000) as Sleep | undefined,
      { what: 'the other one sleeps, subscribed' },
    )
    const began = performance.now()
    await lease.release()
    expect((await waiting).held).toBe(true)
    // Woken: by itself it would have looked only then.
    expect(performance.now() - began).toBeLessThan(asleep.atMostMs)
  })
})

test('locks that could not be made leave their engine free', () => {
  const engine = memory()
  expect(() => createLocks(engine, { ttl: 1 })).toThrow('ttl: expected')
  expect(createLocks(engine).engine).toBe(engine)
})

test('closed locks do not give their engine back', async () => {
  const engine = memory()
  await createLocks(engine).close()
  expect(() => createLocks(engine)).toThrow('given to createLocks before')
})

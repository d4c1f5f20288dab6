import postgresJs from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { postgres, type PostgresLike } from '../../../src/engines/postgres/index.ts'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks } from '../../../src/locks.ts'
import { startPgbouncer } from '../../../harness/servers/pgbouncer.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { until } from '../../../harness/until.ts'
import { grant, request } from '../shared/sql/requests.ts'
import { openPool } from './clients.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startPostgres()
})

afterAll(() => server.stop())

/** An engine on a client of its own. */
async function withEngine(
  url: string,
  kind: 'pg' | 'postgres.js',
  work: (engine: Engine, client: PostgresLike) => Promise<void>,
): Promise<void> {
  const pool = openPool({ connectionString: url, max: 2 })
  const sql = postgresJs(url, { max: 2, onnotice: () => undefined })
  const client = kind === 'pg' ? pool : sql
  const engine = postgres(client)
  try {
    await work(engine, client)
  } finally {
    await engine.close()
    await pool.end()
    await sql.end({ timeout: 1 })
  }
}

const LISTENERS = `SELECT pid FROM pg_stat_activity WHERE query ILIKE 'listen %'`

describe.each(['pg', 'postgres.js'] as const)('with %s', (kind) => {
  test('a waiter is woken by the release of another process, long before it would look by itself', async () => {
    await withEngine(server.url, kind, async (engine) => {
      await withEngine(server.url, kind, async (other) => {
        const events: LockEvent[] = []
        const mine = createLocks(engine, { observe: (event) => void events.push(event) })
        const theirs = createLocks(other)
        const held = await theirs.acquire('wake')
        const waiting = mine.acquire('wake', { wait: '20s' })
        await until(
          async () => (await server.sql(`SELECT awaited FROM ringfence_leases WHERE resource = 'wake'`)) === 't',
          {
            what: 'word that it is awaited',
          },
        )
        const asleepMs = (): number => {
          const last = events.at(-1)
          return last?.type === 'waiting' && last.atMostMs > 1000 ? last.atMostMs : 0
        }
        const atMostMs = await until(asleepMs, { what: 'a waiter that sleeps' })
        const releasedMs = performance.now()
        await held.release()
        await using lease = await waiting
        const afterMs = performance.now() - releasedMs
        console.log(`${kind}: woken ${afterMs.toFixed(1)} ms after the release began`)
        expect(lease.held).toBe(true)
        expect(afterMs).toBeLessThan(atMostMs)
      })
    })
  })

  test('after its listening connection was ended, a watch hears again, and is called meanwhile', async () => {
    await withEngine(server.url, kind, async (engine) => {
      let freed = 0
      const watch = engine.watch!(['gap'], () => freed++)
      expect(await watch.armed).toBe(true)
      const before = await server.sql(LISTENERS)
      expect(before).not.toBe('')
      await server.sql(`SELECT pg_terminate_backend(${before})`)
      await until(() => freed > 0, { what: 'a call because of the gap' })
      await until(async () => ![before, ''].includes(await server.sql(LISTENERS)), { what: 'another connection' })
      await withEngine(server.url, 'pg', async (other) => {
        const lease = await grant(other, { resources: ['gap'] })
        const again = engine.watch!(['gap'], () => undefined)
        await until(() => again.armed, { what: 'an armed watch' })
        const heard = freed
        await other.release(lease)
        await until(() => freed > heard, { what: 'word of the release' })
        again.close()
      })
      watch.close()
    })
  })
})

// These wait, each on connections of its own.
test.concurrent('through a transaction pooler a watch says that it hears nothing, and waiters get in by polling', async () => {
  await using pooler = await startPgbouncer(server.port, { mode: 'transaction' })
  for (const kind of ['pg', 'postgres.js'] as const) {
    await withEngine(pooler.url, kind, async (engine) => {
      const watch = engine.watch!(['pooled'], () => undefined)
      expect(await watch.armed).toBe(false)
      watch.close()
      await withEngine(server.url, 'pg', async (other) => {
        const lease = await grant(other, { resources: ['pooled'] })
        const locks = createLocks(engine)
        const waiting = locks.acquire('pooled', { wait: '20s' })
        await other.release(lease)
        await using mine = await waiting
        expect(mine.held).toBe(true)
      })
    })
  }
})

test.concurrent('through a session pooler it is heard', async () => {
  await using pooler = await startPgbouncer(server.port, { mode: 'session' })
  await withEngine(pooler.url, 'pg', async (engine) => {
    const watch = engine.watch!(['session'], () => undefined)
    expect(await watch.armed).toBe(true)
    watch.close()
  })
})

test.concurrent('a listening connection that goes silent is noticed, and watchers are called as if they polled', async () => {
  await using proxy = await startProxy(server.port)
  const url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres`
  await withEngine(url, 'pg', async (engine) => {
    let freed = 0
    const watch = engine.watch!(['silent'], () => freed++)
    expect(await watch.armed).toBe(true)
    proxy.dropReplies(true)
    await until(() => freed > 0, { what: 'a call', withinMs: 40_000 })
    proxy.dropReplies(false)
    proxy.reset()
    watch.close()
  })
})

test('with listen: false there is no watch, and a release tells nobody', async () => {
  const pool = openPool({ connectionString: server.url })
  const engine = postgres(pool, { listen: false })
  expect(Reflect.get(engine, 'watch')).toBeUndefined()
  const lease = await grant(engine)
  await server.sql('UPDATE ringfence_leases SET awaited = true WHERE owner IS NOT NULL')
  await withEngine(server.url, 'pg', async (other) => {
    let freed = 0
    const watch = other.watch!(lease.resources, () => freed++)
    await watch.armed
    await engine.release(lease)
    // What is told later is heard later: had the first been told, it would have been heard by then.
    const told = await grant(engine, { resources: lease.resources })
    expect((await other.acquire(request({ resources: lease.resources }))).kind).toBe('refused')
    await withEngine(server.url, 'pg', async (third) => void (await third.release(told)))
    await until(() => freed > 0, { what: 'word of the second release' })
    expect(freed).toBe(1)
    watch.close()
  })
  await engine.close()
  await pool.end()
})

test('a pool of one connection can wait, since listening takes none of it', async () => {
  const pool = openPool({ connectionString: server.url, max: 1 })
  const engine = postgres(pool)
  const locks = createLocks(engine)
  await withEngine(server.url, 'pg', async (other) => {
    const held = await grant(other, { resources: ['single'] })
    const waiting = locks.acquire('single', { wait: '20s' })
    await until(async () => (await server.sql(LISTENERS)) !== '', { what: 'an ear' })
    await other.release(held)
    await using lease = await waiting
    expect(lease.held).toBe(true)
  })
  await locks.close()
  await pool.end()
  await expect.poll(() => server.sql(LISTENERS)).toBe('')
})

test('an attempt of someone who does not wait asks nobody to tell', async () => {
  await withEngine(server.url, 'pg', async (engine) => {
    const lease = await grant(engine)
    expect((await engine.acquire(request({ resources: lease.resources }))).kind).toBe('refused')
    expect(await engine.release(lease)).toEqual({ ours: true, awaited: 0 })
  })
})

import type { PGlite } from '@electric-sql/pglite'
import type { Pool } from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { advisoryKey, withAdvisoryLock, type PostgresLike } from '../../../src/engines/postgres/index.ts'
import type { ServerHandle } from '../../support/handle.ts'
import { startPgbouncer } from '../../support/servers/pgbouncer.ts'
import { startPostgres, type PostgresServer } from '../../support/servers/postgres.ts'
import { until } from '../../support/until.ts'
import { connectedClient, openPglite, openPool } from './clients.ts'

let server: PostgresServer
let pooler: ServerHandle
let pool: Pool
let pooled: Pool
let sql: postgresJs.Sql
let db: PGlite

beforeAll(async () => {
  ;[server, db] = await Promise.all([startPostgres(), openPglite()])
  pooler = await startPgbouncer(server.port, { mode: 'transaction' })
  pool = openPool({ connectionString: server.url })
  pooled = openPool({ connectionString: pooler.url })
  sql = postgresJs(server.url, { onnotice: () => undefined })
  await pool.query('CREATE TABLE visits (id int)')
  await db.query('CREATE TABLE visits (id int)')
})

beforeEach(async () => {
  await pool.query('TRUNCATE visits')
  await db.query('TRUNCATE visits')
})

afterAll(async () => {
  await Promise.all([pool.end(), pooled.end(), sql.end({ timeout: 1 }), db.close()])
  await pooler.stop()
  await server.stop()
})

const never = async (): Promise<never> => Promise.reject(new Error('must not run'))
const work = async (): Promise<void> => undefined

/** What a call with any arguments rejects with. */
function refused(...args: unknown[]): Promise<unknown> {
  return (withAdvisoryLock as (...args: unknown[]) => Promise<unknown>)(...args).catch((error: unknown) =>
    String(error),
  )
}

const LOCKS = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`

describe.each<[string, () => PostgresLike, (tx: never) => PromiseLike<unknown>]>([
  [
    'a Pool of pg',
    () => pool,
    (tx: { query(text: string): Promise<unknown> }) => tx.query('INSERT INTO visits VALUES (1)'),
  ],
  [
    'a Pool of pg through a transaction pooler',
    () => pooled,
    (tx: { query(text: string): Promise<unknown> }) => tx.query('INSERT INTO visits VALUES (1)'),
  ],
  ['postgres.js', () => sql, (tx: postgresJs.TransactionSql) => tx`INSERT INTO visits VALUES (1)`],
  ['PGlite', () => db, (tx: { query(text: string): Promise<unknown> }) => tx.query('INSERT INTO visits VALUES (1)')],
])('with %s', (name, client, visit) => {
  const count = async (): Promise<number> => {
    const text = 'SELECT count(*)::int AS visits FROM visits'
    const { rows } = name === 'PGlite' ? await db.query(text) : await pool.query(text)
    return (rows[0] as { visits: number }).visits
  }

  test('the work is done in one transaction, and its value is the answer', async () => {
    const answer = await withAdvisoryLock(client(), 'visits', async (tx) => {
      await visit(tx as never)
      return 'done'
    })
    expect(answer).toBe('done')
    expect(await count()).toBe(1)
  })

  test('an error of the work is passed on, and what it did is undone', async () => {
    const error = new Error('not today')
    const failing = withAdvisoryLock(client(), ['b', 'a'], async (tx) => {
      await visit(tx as never)
      throw error
    })
    await expect(failing).rejects.toBe(error)
    expect(await count()).toBe(0)
  })

  test('never two at once', async () => {
    let inside = 0
    let most = 0
    const section = (): Promise<void> =>
      withAdvisoryLock(client(), 'section', async (tx) => {
        most = Math.max(most, ++inside)
        await visit(tx as never)
        inside--
      })
    await Promise.all(Array.from({ length: 8 }, section))
    expect(most).toBe(1)
    expect(await count()).toBe(8)
  })
})

test('whoever does not wait is told that it is held, and whoever waits too long, how long', async () => {
  await withAdvisoryLock(pool, ['x', 'y'], async () => {
    await expect(withAdvisoryLock(pool, 'x', never, { wait: 0 })).rejects.toMatchObject({
      code: 'HELD',
      resources: ['x'],
    })
    await expect(withAdvisoryLock(sql, 'y', never, { wait: 50 })).rejects.toMatchObject({
      code: 'WAIT_TIMEOUT',
      waitMs: 50,
    })
  })
  await expect(withAdvisoryLock(pool, 'x', async () => 'free', { wait: 0 })).resolves.toBe('free')
  await expect.poll(() => server.sql(LOCKS)).toBe('0')
})

test("the work's own statements wait as long as they did before", async () => {
  const limit = await withAdvisoryLock<string, Pool>(pool, 'limit', async (tx) => {
    const { rows } = await tx.query<{ lock_timeout: string }>('SHOW lock_timeout')
    return rows[0]!.lock_timeout
  })
  expect(limit).toBe('0')
})

test('two who take the same resources in different order never wait in a circle', async () => {
  const rounds = Array.from({ length: 10 }, (_, index) =>
    withAdvisoryLock(pool, index % 2 === 0 ? ['m', 'n'] : ['n', 'm'], async () => index),
  )
  expect(await Promise.all(rounds)).toHaveLength(10)
})

test('a connection that is lost in the middle changes nothing, frees the lock and goes back to no pool', async () => {
  const lost = withAdvisoryLock<void, Pool>(pool, 'lost', async (tx) => {
    await tx.query('INSERT INTO visits VALUES (1)')
    const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    await server.sql(`SELECT pg_terminate_backend(${rows[0]!.pid})`)
    await until(async () => (await server.sql(LOCKS)) === '0', { what: 'the end of the connection' })
    await tx.query('SELECT 1')
  })
  await expect(lost).rejects.toThrow(/terminat|closed|not queryable/)
  expect((await pool.query('SELECT count(*)::int AS visits FROM visits')).rows).toEqual([{ visits: 0 }])
})

test('a Client of pg will do, and statements of others take the same lock by its number', async () => {
  const client = await connectedClient(server.url)
  await withAdvisoryLock(client, 'order:42', async () => {
    const free = await server.sql(`SELECT pg_try_advisory_lock(${advisoryKey('order:42')})`)
    expect(free).toBe('f')
  })
  await client.end()
})

test('bad input is named', async () => {
  expect(await refused({}, 'a', work)).toMatch(/TypeError: client: expected a Pool or Client of pg/)
  expect(await refused({ query: () => undefined }, 'a', work)).toMatch(
    /TypeError: client: expected a Pool .* got an object/,
  )
  expect(await refused(pool, '', work)).toMatch(/TypeError: resource: expected a name, got ''/)
  expect(await refused(pool, [], work)).toMatch(/TypeError: resource: expected a name or several, got an array/)
  expect(await refused(pool, 'a', 'work')).toMatch(/TypeError: work: expected a function, got 'work'/)
  expect(await refused(pool, 'a', work, { wait: -1 })).toMatch(/RangeError: wait: expected at least 0 ms, got -1/)
  expect(await refused(pool, 'a', work, { ttl: 1 })).toMatch(/TypeError: options: expected wait, got 'ttl'/)
})

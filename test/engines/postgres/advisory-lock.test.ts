import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import type { PGlite, Transaction } from '@electric-sql/pglite'
import type { Client, Pool, PoolClient } from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, expectTypeOf, test } from 'vitest'
import { advisoryKey, withAdvisoryLock } from '../../../src/engines/postgres/index.ts'
import type { ServerHandle } from '../../../harness/handle.ts'
import { startPgbouncer } from '../../../harness/servers/pgbouncer.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { until } from '../../../harness/until.ts'
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

/** Runs one statement in the transaction that the work was given. */
type Run = (text: string) => Promise<unknown>
type Locked = <T>(resource: string | string[], work: (run: Run) => Promise<T>) => Promise<T>

function withPool(client: () => Pool): Locked {
  return (resource, work) => withAdvisoryLock(client(), resource, (tx) => work((text) => tx.query(text)))
}

const withSql: Locked = (resource, work) =>
  withAdvisoryLock(sql, resource, (tx) => work(async (text) => tx.unsafe(text)))
const withPglite: Locked = (resource, work) => withAdvisoryLock(db, resource, (tx) => work((text) => tx.query(text)))

describe.each<[string, Locked]>([
  ['a Pool of pg', withPool(() => pool)],
  ['a Pool of pg through a transaction pooler', withPool(() => pooled)],
  ['postgres.js', withSql],
  ['PGlite', withPglite],
])('with %s', (name, locked) => {
  const VISIT = 'INSERT INTO visits VALUES (1)'
  const count = async (id = 1): Promise<number> => {
    const text = `SELECT count(*)::int AS visits FROM visits WHERE id = ${id}`
    const { rows } = name === 'PGlite' ? await db.query(text) : await pool.query(text)
    return (rows[0] as { visits: number }).visits
  }

  test('the work is done in one transaction, and its value is the answer', async () => {
    const answer = await locked('visits', async (run) => {
      await run(VISIT)
      return 'done'
    })
    expect(answer).toBe('done')
    expect(await count()).toBe(1)
  })

  test('an error of the work is passed on, and what it did is undone', async () => {
    const error = new Error('not today')
    const failing = locked(['b', 'a'], async (run) => {
      await run(VISIT)
      throw error
    })
    await expect(failing).rejects.toBe(error)
    expect(await count()).toBe(0)
  })

  test('never two at once', async () => {
    let inside = 0
    let most = 0
    const section = (): Promise<void> =>
      locked('section', async (run) => {
        most = Math.max(most, ++inside)
        await run(VISIT)
        inside--
      })
    await Promise.all(Array.from({ length: 8 }, section))
    expect(most).toBe(1)
    expect(await count()).toBe(8)
  })

  test('rejects when the work went on after a failed statement, because nothing was committed', async () => {
    const passedOver = locked('passed over', async (run) => {
      await run(VISIT)
      await run('SELECT 1 / 0').catch(() => undefined)
    })
    await expect(passedOver).rejects.toMatchObject({
      code: 'ENGINE',
      resources: ['passed over'],
      message: expect.stringContaining('nothing was committed') as string,
    })
    expect(await count()).toBe(0)
  })

  test.each([
    ['COMMIT', ['COMMIT']],
    ['ROLLBACK', ['/* enough */ ROLLBACK']],
    ['BEGIN and COMMIT of its own', ['BEGIN', VISIT, 'COMMIT']],
  ])('rejects when the work has ended the transaction by %s', async (_how, statements) => {
    const ended = locked('ended', async (run) => {
      for (const statement of statements) await run(statement)
      await run('INSERT INTO visits VALUES (2)')
    })
    await expect(ended).rejects.toMatchObject({
      code: 'ENGINE',
      transient: false,
      message: expect.stringContaining('the work has ended the transaction') as string,
    })
    expect(await count(2), 'what came after the end, unprotected').toBe(0)
    expect(await locked('ended', async () => 'goes on')).toBe('goes on')
  })

  test('nothing that the work can name undoes the lock', async () => {
    const undone = locked('named', (run) => run('ROLLBACK TO SAVEPOINT ringfence'))
    await expect(undone).rejects.toThrow('savepoint "ringfence" does not exist')
  })

  test('a savepoint of the work may be rolled back to', async () => {
    await locked('savepoint', async (run) => {
      await run(VISIT)
      await run('SAVEPOINT mine')
      await run(VISIT)
      await run('ROLLBACK TO mine')
    })
    expect(await count()).toBe(1)
  })
})

test('a statement that fails while nobody waits for it costs the commit, and the pool no connection', async () => {
  const client = await pool.connect()
  const { rows: before } = await client.query('SELECT pg_backend_pid() AS pid')
  client.release()
  const passedOver = withAdvisoryLock(pool, 'not awaited', async (tx) => {
    tx.query('SELECT 1 / 0').catch(() => undefined)
  })
  await expect(passedOver).rejects.toThrow('nothing was committed')
  expect((await pool.query('SELECT pg_backend_pid() AS pid')).rows).toEqual(before)
})

test('a rollback of PGlite itself is told as well', async () => {
  const rolledBack = withAdvisoryLock(db, 'rolled back', (tx) => tx.rollback())
  await expect(rolledBack).rejects.toThrow('the work has ended the transaction')
})

/** Never called: the compiler is what checks it. */
async function typesOfTransactions(client: Client): Promise<void> {
  await withAdvisoryLock(pool, 'a', async (tx) => expectTypeOf(tx).toEqualTypeOf<PoolClient>())
  await withAdvisoryLock(client, 'a', async (tx) => expectTypeOf(tx).toEqualTypeOf<Client>())
  await withAdvisoryLock(sql, 'a', async (tx) => expectTypeOf(tx).toEqualTypeOf<postgresJs.TransactionSql>())
  await withAdvisoryLock(db, 'a', async (tx) => expectTypeOf(tx).toEqualTypeOf<Transaction>())
  const answer = await withAdvisoryLock(pool, 'a', async (tx) => (await tx.query<{ n: number }>('')).rows[0]?.n)
  expectTypeOf(answer).toEqualTypeOf<number | undefined>()
}

test('the work knows the type of what it is given', () => {
  expectTypeOf(typesOfTransactions).toBeFunction()
})

test.each<[string, Locked]>([
  ['a Pool of pg', withPool(() => pool)],
  ['postgres.js', withSql],
])('with %s, an end that is hidden in a text is noticed, at the latest before the commit', async (_name, locked) => {
  const ended = locked('hidden', (run) => run('SELECT 1; COMMIT'))
  await expect(ended).rejects.toThrow('the work has ended the transaction')
})

test('the wait is for all resources together', async () => {
  const names = ['w1', 'w2', 'w3'].sort((a, b) => (advisoryKey(a) < advisoryKey(b) ? -1 : 1))
  const frees = names.map(() => new AbortController())
  const holders = names.map((name, index) => withAdvisoryLock(pool, name, () => once(frees[index]!.signal, 'abort')))
  await until(async () => (await server.sql(LOCKS)) === '3', { what: 'three holders' })
  const waiting = withAdvisoryLock(pool, names, never, { wait: 400 }).catch((error: unknown) => error)
  // Each is free within the wait, but not all of them.
  for (const free of frees) {
    await pause(300)
    free.abort()
  }
  expect(await waiting).toMatchObject({ code: 'WAIT_TIMEOUT', waitMs: 400 })
  await Promise.all(holders)
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
  const limit = await withAdvisoryLock(pool, 'limit', async (tx) => {
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
  const lost = withAdvisoryLock(pool, 'lost', async (tx) => {
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

test.each<[string, string[]]>([
  ['done', []],
  ['ended by the work', ['COMMIT']],
])("a client of a pool that is the user's own stays the user's when the work is %s", async (_how, statements) => {
  const client = await pool.connect()
  const locked = withAdvisoryLock(client, 'own', async (tx) => {
    for (const statement of statements) await tx.query(statement)
  })
  expect(await locked.then(() => 'done', String)).toMatch(statements.length === 0 ? /^done$/ : /the work has ended/)
  const other = await pool.connect()
  expect(other).not.toBe(client)
  expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
  other.release()
  client.release()
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
  expect(await refused(pool, 'a', work, { ttl: 1 })).toMatch(/TypeError: options: expected wait, clock, got 'ttl'/)
})

import { PGlite } from '@electric-sql/pglite'
import * as mariadb from 'mariadb'
import mysql from 'mysql2/promise'
import { Pool } from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  mariadbGuard,
  postgresGuard,
  type Effect,
  type EffectOptions,
  type Isolation,
  type SqlGuard,
} from '../../src/guards/index.ts'
import { startMariadb, type MariadbServer } from '../../harness/servers/mariadb.ts'
import { startPostgres, type PostgresServer } from '../../harness/servers/postgres.ts'
import { freshKey, onceSuite, resultSuite, runsSuite, type OnceBench, type Task } from './once-suite.ts'
import { freshResource, gate, leaseOf } from './suite.ts'

let pgServer: PostgresServer
let mariaServer: MariadbServer
let pool: Pool
let sql: postgres.Sql
let lite: PGlite
let maria: mariadb.Pool
let maria2: mysql.Pool

const COUNTERS = 'CREATE TABLE counter (id varchar(200) PRIMARY KEY, n int NOT NULL)'

beforeAll(async () => {
  ;[pgServer, mariaServer] = await Promise.all([startPostgres(), startMariadb()])
  pool = new Pool({ connectionString: pgServer.url, max: 25 }).on('error', () => undefined)
  sql = postgres(pgServer.url, { max: 25, onnotice: () => undefined })
  lite = new PGlite()
  const { host, port, user, database } = mariaServer
  maria = mariadb.createPool({ host, port, user, database, connectionLimit: 25 })
  maria2 = mysql.createPool({ host, port, user, database, connectionLimit: 25, rowsAsArray: true })
  await Promise.all([pool.query(COUNTERS), lite.exec(COUNTERS), maria.query(COUNTERS)])
})

afterAll(async () => {
  await Promise.all([pool?.end(), sql?.end(), lite?.close(), maria?.end(), maria2?.end()])
  await Promise.all([pgServer?.stop(), mariaServer?.stop()])
})

type Run = (text: string, params: unknown[]) => Promise<unknown>

/** Adds one by a statement of the transaction. */
function worker(add: string, runIn: (transaction: never) => Run): OnceBench<SqlGuard<never>>['add'] {
  return (guard, lease, key, task, options) =>
    guard.once(lease, key, (transaction) => work(runIn(transaction), add, task), options)
}

async function work(run: Run, add: string, { counter, result, failure }: Task): Promise<unknown> {
  await run(add, [counter])
  if (failure !== undefined) throw new Error(failure)
  return result
}

const PG_ADD = 'INSERT INTO counter VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = counter.n + 1'
const MARIA_ADD = 'INSERT INTO counter VALUES (?, 1) ON DUPLICATE KEY UPDATE n = n + 1'

function pgBench(
  ask: Run,
  guard: OnceBench<SqlGuard<never>>['guard'],
  runIn: (transaction: never) => Run,
): OnceBench<SqlGuard<never>> {
  const rows = async (text: string, params: unknown[]): Promise<Record<string, unknown>[]> => {
    const answer = await ask(text, params)
    return (Array.isArray(answer) ? answer : (answer as { rows: unknown[] }).rows) as Record<string, unknown>[]
  }
  return {
    guard,
    add: worker(PG_ADD, runIn),
    read: async (counter) => Number((await rows('SELECT n FROM counter WHERE id = $1', [counter]))[0]?.['n'] ?? 0),
    has: async (key) => (await rows('SELECT 1 FROM ringfence_guard_once WHERE effect = $1', [key])).length > 0,
    async endsAt(key) {
      const [row] = await rows('SELECT kept_until FROM ringfence_guard_once WHERE effect = $1', [key])
      return (row!['kept_until'] as Date | null)?.getTime()
    },
    end: async (key) => {
      await ask(`UPDATE ringfence_guard_once SET kept_until = now() - interval '1 s' WHERE effect = $1`, [key])
    },
    async through({ port }, options) {
      const far = new Pool({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres', max: 2 })
      far.on('error', () => undefined)
      return { guard: postgresGuard(far, options) as unknown as SqlGuard<never>, close: () => far.end() }
    },
    port: () => pgServer.port,
    commit: 'COMMIT',
  }
}

const pg = (): OnceBench<SqlGuard<never>> =>
  pgBench(
    (text, params) => pool.query(text, params),
    (options) => postgresGuard(pool, options) as unknown as SqlGuard<never>,
    (tx: never) => (text, params) => (tx as unknown as Pool).query(text, params),
  )

const postgresJs = (): OnceBench<SqlGuard<never>> => ({
  ...pgBench(
    (text, params) => sql.unsafe(text, params as never[]),
    (options) => postgresGuard(sql, options) as unknown as SqlGuard<never>,
    (tx: never) => (text, params) => (tx as unknown as postgres.TransactionSql).unsafe(text, params as never[]),
  ),
  async through({ port }, options) {
    // A prepared statement would be sent by its name alone.
    const quiet = { max: 2, prepare: false, onnotice: () => undefined }
    const far = postgres({ host: '127.0.0.1', port, user: 'postgres', ...quiet })
    return { guard: postgresGuard(far, options) as unknown as SqlGuard<never>, close: () => far.end({ timeout: 1 }) }
  },
  commit: 'commit',
})

function mariaBench(
  ask: Run,
  guard: OnceBench<SqlGuard<never>>['guard'],
  open: (port: number) => mariadb.Pool | mysql.Pool,
): OnceBench<SqlGuard<never>> {
  return {
    guard,
    add: worker(MARIA_ADD, (tx: never) => (text, params) => (tx as unknown as mariadb.Connection).query(text, params)),
    read: async (counter) => Number((await maria.query('SELECT n FROM counter WHERE id = ?', [counter]))[0]?.n ?? 0),
    has: async (key) =>
      (await maria.query('SELECT 1 FROM ringfence_guard_once WHERE effect = ?', [Buffer.from(key)])).length > 0,
    async endsAt(key) {
      const [row] = await maria.query(
        `SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', kept_until) AS s FROM ringfence_guard_once WHERE effect = ?`,
        [Buffer.from(key)],
      )
      return row.s === null ? undefined : Number(row.s) * 1000
    },
    end: async (key) => {
      await ask(`UPDATE ringfence_guard_once SET kept_until = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND WHERE effect = ?`, [
        Buffer.from(key),
      ])
    },
    async through({ port }, options) {
      const far = open(port)
      return { guard: mariadbGuard(far as mariadb.Pool, options) as unknown as SqlGuard<never>, close: () => far.end() }
    },
    port: () => mariaServer.port,
    commit: 'COMMIT',
  }
}

const mariadbDriver = (): OnceBench<SqlGuard<never>> =>
  mariaBench(
    (text, params) => maria.query(text, params),
    (options) => mariadbGuard(maria, options) as unknown as SqlGuard<never>,
    (port) => mariadb.createPool({ host: '127.0.0.1', port, user: 'root', database: 'ringfence', connectionLimit: 2 }),
  )

const mysql2 = (): OnceBench<SqlGuard<never>> =>
  mariaBench(
    (text, params) => maria2.query(text, params),
    (options) => mariadbGuard(maria2, options) as unknown as SqlGuard<never>,
    (port) => mysql.createPool({ host: '127.0.0.1', port, user: 'root', database: 'ringfence', connectionLimit: 2 }),
  )

const ALL: Readonly<Record<string, () => OnceBench<SqlGuard<never>>>> = {
  pg,
  'postgres.js': postgresJs,
  mariadb: mariadbDriver,
  mysql2,
}
for (const [name, bench] of Object.entries(ALL)) onceSuite(name, bench)

resultSuite('pg', pg)
resultSuite('mariadb', mariadbDriver)

runsSuite('pg', (options) => postgresGuard(pool, options))
runsSuite('PGlite', (options) => postgresGuard(lite, options))
runsSuite('mariadb', (options) => mariadbGuard(maria, options))
runsSuite('mysql2', (options) => mariadbGuard(maria2, options))

test('PGlite: once, and a repeat', async () => {
  const guard = postgresGuard(lite)
  const lease = leaseOf(freshResource(), 1n)
  const call = (): Promise<Effect<string>> =>
    guard.once(lease, 'k', async (tx) => String((await tx.query('SELECT 1 AS n')).rows.length), { keep: '1d' })
  expect([await call(), await call()]).toMatchObject([
    { ran: true, value: '1' },
    { ran: false, value: '1' },
  ])
})

describe.each(['pg', 'mariadb'] as const)('%s, tables of once', (name) => {
  const bench = ALL[name]!
  const guardOf = (table: string): SqlGuard<never> =>
    (name === 'pg' ? postgresGuard(pool, { table }) : mariadbGuard(maria, { table })) as unknown as SqlGuard<never>
  const ask = (text: string): Promise<unknown> => (name === 'pg' ? pool.query(text) : maria.query(text))

  test.each<Isolation>(['read committed', 'repeatable read', 'serializable'])(
    '%s: the loser of a race for a key gets the result of the winner',
    async (isolation) => {
      const { guard } = bench()
      const [key, inside, leave] = [freshKey(), gate(), gate()]
      const winner = guard().once(
        leaseOf(freshResource(), 1n),
        key,
        async () => {
          inside.open()
          await leave.opened
          return 'first'
        },
        { isolation },
      )
      await inside.opened
      let runs = 0
      const loser = guard().once(leaseOf(freshResource(), 1n), key, () => String(++runs), { isolation })
      leave.open()
      expect(await Promise.all([winner, loser])).toMatchObject([
        { ran: true, value: 'first' },
        { ran: false, value: 'first' },
      ])
      expect(runs).toBe(0)
    },
  )

  test('while the key is taken by open work elsewhere, a call is given up in time, with an error to try again', async () => {
    const { guard } = bench()
    const [key, inside, leave] = [freshKey(), gate(), gate()]
    const winner = guard().once(leaseOf(freshResource(), 1n), key, async () => {
      inside.open()
      await leave.opened
      return 1
    })
    await inside.opened
    const hasty = guard({ requestTimeout: 300 })
    const lease = leaseOf(freshResource(), 1n)
    await expect(hasty.once(lease, key, () => 2)).rejects.toMatchObject({ code: 'GUARD', transient: true })
    leave.open()
    await winner
    expect(await guard().once(lease, key, () => 3)).toMatchObject({ ran: false, value: 1 })
  })

  test('init creates all tables, and their statements are there for a migration', async () => {
    const guard = guardOf(`made_${name}`)
    await guard.init()
    await guard.init()
    for (const suffix of ['', '_once', '_runs']) await ask(`SELECT 1 FROM made_${name}${suffix}`)
    const migrated = guardOf(`moved_${name}`)
    for (const statement of [migrated.schema, migrated.onceSchema, migrated.runsSchema]) await ask(statement)
    expect(await migrated.once(leaseOf('a', 1n), 'k', () => 1, { keep: '1d' })).toMatchObject({ ran: true })
    expect(() => guardOf('x'.repeat(59))).toThrow('table: expected a name of at most 58 characters, got 59')
  })

  test('a guard deletes at most 100 old records before its first call with keep, and the rest later', async () => {
    const [table, lease] = [`old_${name}`, leaseOf(freshResource(), 1n)]
    await guardOf(table).init()
    const past = name === 'pg' ? `now() - interval '1 h'` : 'UTC_TIMESTAMP() - INTERVAL 1 HOUR'
    const values = Array.from({ length: 150 }, (_, n) => `('old:${n}', '', 1, ${past}, ${past})`)
    await ask(`INSERT INTO ${table}_once (effect, engine, token, recorded_at, kept_until) VALUES ${values.join(', ')}`)
    const left = async (): Promise<number> => {
      const answer = (await ask(
        `SELECT effect FROM ${table}_once WHERE kept_until < ${name === 'pg' ? 'now()' : 'UTC_TIMESTAMP()'}`,
      )) as { rows: unknown[] } & unknown[]
      return (answer.rows ?? answer).length
    }
    await guardOf(table).once(lease, 'new', () => 1)
    expect(await left()).toBe(150)
    const guard = guardOf(table)
    await guard.once(lease, 'newer', () => 1, { keep: '1d' })
    expect(await left()).toBe(50)
    for (let n = 0; n < 51; n++) await guard.once(lease, 'newer', () => 1, { keep: '1d' })
    expect(await left()).toBe(0)
  })
})

test('a table in a schema has its records there', async () => {
  await pool.query('CREATE SCHEMA app')
  const guard = postgresGuard(pool, { table: 'app.fences' })
  await guard.once(leaseOf('a', 1n), 'k', () => 1, { keep: '1d' })
  expect((await pool.query('SELECT effect FROM app.fences_once')).rows).toEqual([{ effect: 'k' }])
})

test('mariadb: a user with the rights that the documents name, and none more', async () => {
  const { host, port, database } = mariaServer
  await mariadbGuard(maria).init()
  await maria.query(`CREATE USER poor`)
  for (const suffix of ['', '_once'])
    await maria.query(`GRANT SELECT, INSERT, UPDATE ON ringfence_guard${suffix} TO poor`)
  await maria.query('GRANT SELECT, INSERT, UPDATE, DELETE ON ringfence_guard_runs TO poor')
  const poor = mariadb.createPool({ host, port, user: 'poor', database, connectionLimit: 2 })
  const guard = mariadbGuard(poor)
  const call = (options: EffectOptions): Promise<unknown> =>
    guard.once(leaseOf(freshResource(), 1n), freshKey(), () => 1, options)
  expect(await call({})).toMatchObject({ ran: true })
  await expect(call({ keep: '1d' })).rejects.toMatchObject({ errno: 1142 })
  await guard.recordRun({ job: 'j', owner: 'o@x', token: 1n, engine: 'redis:', outcome: 'done', tookMs: 1 })
  expect(await guard.runs('j')).toHaveLength(1)
  await poor.end()
})

test('without the right to create tables, and without tables, the error is the database’s own', async () => {
  await pool.query(`CREATE ROLE poor LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
  const poor = new Pool({ host: '127.0.0.1', port: pgServer.port, user: 'poor', database: 'postgres' })
  // Its connections may outlive its end by a moment, and meet the end of the server.
  poor.on('error', () => undefined)
  const guard = postgresGuard(poor, { table: 'absent' })
  await expect(guard.once(leaseOf('a', 1n), 'k', () => 1)).rejects.toMatchObject({ code: '42501' })
  await pool.query('GRANT SELECT, INSERT, UPDATE ON ringfence_guard, ringfence_guard_once TO poor')
  const granted = postgresGuard(poor)
  expect(await granted.once(leaseOf(freshResource(), 1n), freshKey(), () => 1)).toMatchObject({ ran: true })
  await expect(granted.once(leaseOf(freshResource(), 1n), freshKey(), () => 1, { keep: '1d' })).rejects.toMatchObject({
    code: '42501',
  })
  await poor.end()
})

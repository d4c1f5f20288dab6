import { PGlite, type Transaction } from '@electric-sql/pglite'
import { Client, Pool, type PoolClient } from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { postgresGuard, type Fenced, type Isolation, type SqlGuard } from '../../src/guards/index.ts'
import { startPostgres, type PostgresServer } from '../../harness/servers/postgres.ts'
import { until } from '../../harness/until.ts'
import { freshResource, gate, guardSuite, leaseOf, type Bench } from './suite.ts'
import { lostLeaseTrials } from './lost-lease.ts'

let server: PostgresServer
let pool: Pool
let sql: postgres.Sql
let lite: PGlite

const ACCOUNTS = `CREATE TABLE account (
  id text PRIMARY KEY, balance int NOT NULL DEFAULT 0, fence_token bigint, fence_engine text)`

beforeAll(async () => {
  server = await startPostgres()
  pool = new Pool({ connectionString: server.url, max: 10 })
  sql = postgres(server.url, { max: 10, onnotice: () => undefined })
  lite = new PGlite()
  await pool.query(ACCOUNTS)
  await lite.exec(ACCOUNTS)
})

afterAll(async () => {
  await pool?.end()
  await sql?.end()
  await lite?.close()
  await server?.stop()
})

const SET =
  'INSERT INTO account (id, balance) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET balance = excluded.balance'

async function readPool(resource: string): Promise<number> {
  const { rows } = await pool.query('SELECT balance FROM account WHERE id = $1', [resource])
  return rows[0]?.balance ?? 0
}

async function readLite(resource: string): Promise<number> {
  const { rows } = await lite.query<{ balance: number }>('SELECT balance FROM account WHERE id = $1', [resource])
  return rows[0]?.balance ?? 0
}

function pgBench(): Bench<SqlGuard<PoolClient>> {
  return {
    guard: (options) => postgresGuard(pool, options),
    read: readPool,
    write: (guard, lease, value) =>
      guard.transaction(lease, async (tx) => {
        for (const resource of lease.resources) await tx.query(SET, [resource, value])
      }),
  }
}

guardSuite('pg, in a transaction of the guard', pgBench)

guardSuite('pg, in a transaction of our own', () => ({
  ...pgBench(),
  async write(guard, lease, value) {
    const client = await pool.connect()
    try {
      await client.query('BEGIN')
      await guard.within(client, lease)
      for (const resource of lease.resources) await client.query(SET, [resource, value])
      await client.query('COMMIT')
    } catch (error) {
      await client.query('ROLLBACK')
      throw error
    } finally {
      client.release()
    }
  },
}))

guardSuite('postgres.js', () => ({
  guard: (options) => postgresGuard(sql, options),
  async read(resource) {
    const [row] = await sql`SELECT balance FROM account WHERE id = ${resource}`
    return row?.['balance'] ?? 0
  },
  write: (guard, lease, value) =>
    guard.transaction(lease, async (tx) => {
      for (const resource of lease.resources) await tx.unsafe(SET, [resource, value])
    }),
}))

guardSuite('PGlite', () => ({
  guard: (options) => postgresGuard(lite, options),
  read: readLite,
  write: (guard, lease, value) =>
    guard.transaction(lease, async (tx) => {
      for (const resource of lease.resources) await tx.query(SET, [resource, value])
    }),
}))

/** The fence in columns of the row: every resource is a row, and so a fence of its own. */
function columnBench(
  run: (text: string, params: unknown[]) => Promise<unknown>,
  guard: Bench<SqlGuard<unknown>>['guard'],
): Bench<SqlGuard<unknown>> {
  const statement = async (guard: SqlGuard<unknown>, lease: Fenced, from?: string, value?: number): Promise<void> => {
    for (const resource of [...lease.resources].sort()) {
      await run('INSERT INTO account (id) VALUES ($1) ON CONFLICT DO NOTHING', [resource])
      const one = { ...lease, resources: [resource] }
      const fence = guard.column(one, { after: 2, ...(from === undefined ? {} : { from }) })
      const result = await run(
        `UPDATE account SET balance = coalesce($1, balance), ${fence.set} WHERE id = $2 AND ${fence.where}`,
        [value ?? null, resource, ...fence.params],
      )
      const look = (): Promise<unknown> => run(`SELECT ${fence.select} FROM account WHERE id = $1`, [resource])
      expect(await fence.check(result, look)).toBe(1)
    }
  }
  return {
    guard,
    read: readPool,
    enter: (guard, lease) => statement(guard, lease),
    adopt: (guard, lease, from) => statement(guard, lease, from),
    write: (guard, lease, value) => statement(guard, lease, undefined, value),
  }
}

guardSuite(
  'pg, columns',
  () =>
    columnBench(
      (text, params) => pool.query(text, params),
      (options) => postgresGuard(pool, options),
    ),
  { oneByOne: true },
)

describe('columns', () => {
  test.each<[string, () => SqlGuard<unknown>, (text: string, params: unknown[]) => Promise<unknown>]>([
    ['pg', () => postgresGuard(pool), (text, params) => pool.query(text, params)],
    ['postgres.js', () => postgresGuard(sql), async (text, params) => sql.unsafe(text, params as never[])],
    ['PGlite', () => postgresGuard(lite), (text, params) => lite.query(text, params)],
  ])('%s: the row count is read, and a token above 2^53 is not rounded', async (_driver, guard, run) => {
    const resource = freshResource()
    await run('INSERT INTO account (id) VALUES ($1)', [resource])
    const write = async (token: bigint, id = resource, and = ''): Promise<number> => {
      const fence = guard().column(leaseOf(resource, token), { after: 1 })
      const text = `UPDATE account SET balance = 1, ${fence.set} WHERE id = $1 AND ${fence.where} ${and}`
      const look = (): Promise<unknown> => run(`SELECT ${fence.select} FROM account WHERE id = $1`, [id])
      return fence.check(await run(text, [id, ...fence.params]), look)
    }
    expect(await write(2n ** 53n + 1n)).toBe(1)
    await expect(write(2n ** 53n)).rejects.toMatchObject({ token: 2n ** 53n, seen: 2n ** 53n + 1n })
    expect(await write(2n ** 53n + 1n, 'no such row')).toBe(0)
    expect(await write(2n ** 53n + 1n, resource, 'AND balance > 5')).toBe(0)
  })

  test.each([
    ['fence_token bigint NOT NULL DEFAULT 0, fence_engine text'],
    [`fence_token bigint NOT NULL DEFAULT 0, fence_engine text NOT NULL DEFAULT ''`],
  ])('%s: a row that nobody has fenced yet is open, and fenced by its first write', async (columns) => {
    await pool.query(`DROP TABLE IF EXISTS item; CREATE TABLE item (id int PRIMARY KEY, quantity int, ${columns})`)
    await pool.query('INSERT INTO item (id, quantity) VALUES (1, 0)')
    const guard = postgresGuard(pool)
    const write = async (token: bigint, quantity: number, and = ''): Promise<number> => {
      const fence = guard.column(leaseOf('item:1', token), { after: 1 })
      const result = await pool.query(
        `UPDATE item SET quantity = $1, ${fence.set} WHERE id = 1 AND ${fence.where} ${and}`,
        [quantity, ...fence.params],
      )
      return fence.check(result, () => pool.query(`SELECT ${fence.select} FROM item WHERE id = 1 FOR UPDATE`))
    }
    expect(await write(5n, 1, 'AND quantity > 9')).toBe(0)
    expect(await write(5n, 1)).toBe(1)
    await expect(write(4n, 2)).rejects.toMatchObject({ code: 'STALE_TOKEN', seen: 5n })
    await pool.query(`UPDATE item SET fence_engine = DEFAULT`)
    await expect(write(6n, 2)).rejects.toMatchObject({
      code: 'GUARD',
      transient: false,
      message: expect.stringContaining('the row has the token 5 without an engine'),
    })
  })

  test('names, numbers and results that can not be are refused', async () => {
    const lease = leaseOf('a', 1n)
    const guard = postgresGuard(pool)
    expect(() => guard.column(lease, { token: 'x; DROP TABLE account' })).toThrow(
      'token: expected the name of a column',
    )
    expect(() => guard.column(lease, { after: -1 })).toThrow('after: expected a whole number from 0 on, got -1')
    await expect(guard.column(lease).check(undefined, async () => [])).rejects.toThrow('result: expected')
    await expect(guard.column(lease).check(0, undefined as never)).rejects.toThrow('look: expected a function')
  })
})

/** How many statements of this server wait for another transaction. */
async function waiting(): Promise<number> {
  const { rows } = await pool.query("SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
  return rows[0].count
}

const ISOLATIONS: Isolation[] = ['read committed', 'repeatable read', 'serializable']

describe('two holders at once', () => {
  test.each(ISOLATIONS)('%s: the newer one waits for the older, then reads what it wrote', async (isolation) => {
    const guard = postgresGuard(pool)
    const resource = freshResource()
    const [inside, leave] = [gate(), gate()]
    const older = guard.transaction(
      leaseOf(resource, 1n),
      async (tx) => {
        inside.open()
        await leave.opened
        await tx.query(SET, [resource, 70])
      },
      { isolation },
    )
    await inside.opened
    let runs = 0
    const newer = guard.transaction(
      leaseOf(resource, 2n),
      async (tx) => {
        runs++
        const { rows } = await tx.query('SELECT balance FROM account WHERE id = $1', [resource])
        await tx.query(SET, [resource, rows[0].balance - 20])
      },
      { isolation },
    )
    await until(async () => (await waiting()) === 1, { what: 'the newer one waits' })
    leave.open()
    await older
    await newer
    expect(await readPool(resource)).toBe(50)
    expect(runs).toBe(1)
  })

  test.each(ISOLATIONS)('%s: the older one waits for the newer, and is refused', async (isolation) => {
    const guard = postgresGuard(pool)
    const resource = freshResource()
    await guard.enter(leaseOf(resource, 1n))
    const [inside, leave] = [gate(), gate()]
    const newer = guard.transaction(leaseOf(resource, 2n), async () => {
      inside.open()
      await leave.opened
    })
    await inside.opened
    let runs = 0
    const older = guard.transaction(leaseOf(resource, 1n), () => void runs++, { isolation })
    await until(async () => (await waiting()) === 1, { what: 'the older one waits' })
    const outcome = older.catch((error: unknown) => error)
    leave.open()
    await newer
    expect(await outcome).toMatchObject({ code: 'STALE_TOKEN', seen: 2n })
    expect(runs).toBe(0)
  })

  test('what our own transaction read before it entered is not trusted: it fails as a conflict', async () => {
    const guard = postgresGuard(pool)
    const resource = freshResource()
    await guard.enter(leaseOf(resource, 1n))
    const client = await pool.connect()
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    await client.query('SELECT 1 FROM account')
    await guard.transaction(leaseOf(resource, 2n), (tx) => tx.query(SET, [resource, 5]))
    await expect(guard.within(client, leaseOf(resource, 3n))).rejects.toMatchObject({ code: '40001' })
    await client.query('ROLLBACK')
    client.release()
  })
})

describe('a transaction', () => {
  test('gives what the work gives; its error rolls back the work and the fence', async () => {
    const guard = postgresGuard(pool)
    const resource = freshResource()
    expect(await guard.transaction(leaseOf(resource, 1n), () => 'done')).toBe('done')
    const error = new Error('out of coffee')
    const failing = guard.transaction(leaseOf(resource, 5n), async (tx) => {
      await tx.query(SET, [resource, 5])
      throw error
    })
    await expect(failing).rejects.toBe(error)
    expect(await readPool(resource)).toBe(0)
    await guard.enter(leaseOf(resource, 2n))
    expect(pool.idleCount).toBe(pool.totalCount)
  })

  type Run = (text: string, params?: unknown[]) => Promise<unknown>
  type Guarded = (lease: Fenced, work: (run: Run) => Promise<unknown>) => Promise<unknown>

  test.each<[string, Guarded, (resource: string) => Promise<number>]>([
    [
      'pg',
      (lease, work) => postgresGuard(pool).transaction(lease, (tx) => work((text, params) => tx.query(text, params))),
      readPool,
    ],
    [
      'postgres.js',
      (lease, work) =>
        postgresGuard(sql).transaction(lease, (tx) => work(async (text, params) => tx.unsafe(text, params as never[]))),
      readPool,
    ],
    [
      'PGlite',
      (lease, work) => postgresGuard(lite).transaction(lease, (tx) => work((text, params) => tx.query(text, params))),
      readLite,
    ],
  ])('%s: rejects when nothing is committed, or when the work has ended it', async (_driver, guarded, read) => {
    const resource = freshResource()
    const passedOver = guarded(leaseOf(resource, 1n), (run) => run('SELECT 1 / 0').catch(() => undefined))
    await expect(passedOver).rejects.toMatchObject({
      code: 'GUARD',
      transient: true,
      message: expect.stringContaining('nothing was committed'),
    })
    const stale = guarded(leaseOf(resource, 5n), async (run) => {
      // A helper with a transaction of its own, on the same connection.
      for (const statement of ['BEGIN', 'SELECT 1', 'COMMIT']) await run(statement)
      await guarded(leaseOf(resource, 6n), (newer) => newer(SET, [resource, 50]))
      await run(SET, [resource, 1])
    })
    await expect(stale).rejects.toMatchObject({
      code: 'GUARD',
      resources: [resource],
      transient: false,
      message: expect.stringContaining('the work has ended the transaction'),
    })
    expect(await read(resource), 'the stale write').not.toBe(1)
    await guarded(leaseOf(resource, 7n), (run) => run(SET, [resource, 7]))
    expect(await read(resource)).toBe(7)
  })

  test('does not run the work again when its own statements conflict', async () => {
    const guard = postgresGuard(pool)
    const [first, second] = [freshResource(), freshResource()]
    await pool.query(SET, [first, 1])
    let runs = 0
    const work = guard.transaction(
      leaseOf(second, 1n),
      async (tx) => {
        runs++
        await tx.query('SELECT 1')
        await pool.query(SET, [first, 2])
        await tx.query(SET, [first, 3])
      },
      { isolation: 'repeatable read' },
    )
    await expect(work).rejects.toMatchObject({ code: '40001' })
    expect(runs).toBe(1)
  })

  test('that the server ends while the work is elsewhere fails, and brings nothing else down', async () => {
    const impatient = new Pool({ connectionString: server.url, idle_in_transaction_session_timeout: 50 })
    const guard = postgresGuard(impatient)
    const resource = freshResource()
    const work = guard.transaction(leaseOf(resource, 1n), async (tx) => {
      const idle = "SELECT count(*)::int FROM pg_stat_activity WHERE state = 'idle in transaction'"
      await until(async () => (await pool.query(idle)).rows[0].count === 0, { what: 'the server ended it' })
      await tx.query(SET, [resource, 1])
    })
    await expect(work).rejects.toThrow(/idle-in-transaction|terminated|not queryable/)
    expect(await readPool(resource)).toBe(0)
    await guard.enter(leaseOf(resource, 1n))
    await impatient.end()
  })
})

describe('a transaction of our own', () => {
  test('must be open: a connection without one, and a pool, are refused', async () => {
    const guard = postgresGuard(pool)
    const resource = freshResource()
    const client = await pool.connect()
    await expect(guard.within(client, leaseOf(resource, 9n))).rejects.toMatchObject({
      code: 'GUARD',
      message: 'within() needs a connection with an open transaction: BEGIN on it first, or use transaction()',
      transient: false,
    })
    client.release()
    await expect(guard.within(pool as never, leaseOf(resource, 9n))).rejects.toThrow(TypeError)
    await expect(postgresGuard(sql).within(sql as never, leaseOf(resource, 9n))).rejects.toThrow(TypeError)
    await expect(guard.within(42 as never, leaseOf(resource, 9n))).rejects.toThrow('transaction: expected')
    await guard.enter(leaseOf(resource, 1n))
  })

  test('of other software is entered by a function that runs a statement in it', async () => {
    const guard = postgresGuard(pool)
    const resource = freshResource()
    await sql.begin(async (tx) => {
      await guard.within(async (text, params) => tx.unsafe(text, params as never[]), leaseOf(resource, 4n))
    })
    await expect(guard.enter(leaseOf(resource, 3n))).rejects.toMatchObject({ seen: 4n })
  })
})

describe('the table', () => {
  test('is created by whoever needs it first, however many do at once', async () => {
    const options = { table: 'public.made_on_demand' }
    const resource = freshResource()
    const entering = Array.from({ length: 8 }, () => postgresGuard(pool, options).enter(leaseOf(resource, 1n)))
    await Promise.all(entering)
    expect(await server.sql('SELECT resource, engine, token FROM made_on_demand')).toBe(`${resource}|redis:|1`)
  })

  test('can be made from the text, and is then used without the right to create one', async () => {
    const guard = postgresGuard(pool, { table: 'by_migration' })
    await pool.query(guard.schema)
    await guard.init()
    await pool.query('CREATE ROLE clerk LOGIN; GRANT SELECT, INSERT, UPDATE ON by_migration TO clerk')
    await pool.query('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    const url = new URL(server.url)
    url.username = 'clerk'
    const clerk = new Pool({ connectionString: url.href })
    await postgresGuard(clerk, { table: 'by_migration' }).enter(leaseOf('a', 1n))
    await expect(postgresGuard(clerk, { table: 'absent' }).enter(leaseOf('a', 1n))).rejects.toMatchObject({
      code: '42501',
    })
    await clerk.end()
  })

  test('that is missing in a transaction of our own is not created there, and the error says what to do', async () => {
    const guard = postgresGuard(pool, { table: 'never_made' })
    const client = await pool.connect()
    await client.query('BEGIN')
    await expect(guard.within(client, leaseOf('a', 1n))).rejects.toMatchObject({
      code: 'GUARD',
      transient: false,
      message: expect.stringContaining('there is no table "never_made"; the guard does not create it'),
    })
    await client.query('ROLLBACK')
    client.release()
  })

  test.each([['a b'], ['x"; DROP TABLE account; --'], ['a.b.c'], [''], [7 as never]])(
    'can not be called %j',
    (table) => {
      expect(() => postgresGuard(pool, { table })).toThrow('table: expected a name')
    },
  )
})

test.each<[unknown, string]>([
  ['postgres://localhost', 'got a string: connect first'],
  [undefined, 'got undefined'],
  [new Client(), 'so give a pool'],
  [{}, 'got an object of another kind'],
])('%s is not a client', (client, message) => {
  expect(() => postgresGuard(client as never)).toThrow(message)
})

describe('a server that does not answer', () => {
  test('is given up in time, before the work, at its end, and after an error of the work', async () => {
    await using frozen = await startPostgres()
    const own = new Pool({ connectionString: frozen.url, max: 3 })
    own.on('error', () => undefined)
    const guard = postgresGuard(own, { requestTimeout: 300 })
    await guard.enter(leaseOf('a', 1n))
    const silence = { code: 'GUARD', transient: true, message: expect.stringContaining('no answer within 300 ms') }
    const error = new Error('of the work')

    await expect(guard.transaction(leaseOf('a', 1n), () => frozen.freeze())).rejects.toMatchObject(silence)
    await expect(guard.enter(leaseOf('a', 1n))).rejects.toMatchObject(silence)
    await frozen.thaw()
    const failing = guard.transaction(leaseOf('a', 1n), async () => {
      await frozen.freeze()
      throw error
    })
    await expect(failing).rejects.toBe(error)
    await frozen.thaw()
    await guard.enter(leaseOf('a', 2n))
    await until(() => own.idleCount === own.totalCount && own.waitingCount === 0, { what: 'no connection is kept' })
    await own.end()
  })
})

test('a server that is down is a GuardError with the reason, also before the table is known', async () => {
  const nowhere = new Pool({ host: '127.0.0.1', port: 1, connectionTimeoutMillis: 5000 })
  const guard = postgresGuard(nowhere)
  const lease = leaseOf(freshResource(), 1n)
  const down = {
    name: 'GuardError',
    code: 'GUARD',
    transient: true,
    message: expect.stringMatching(/^the postgres guard failed: .*ECONNREFUSED/) as string,
  }
  await expect(guard.enter(lease)).rejects.toMatchObject({ ...down, resources: lease.resources })
  await expect(guard.init()).rejects.toMatchObject(down)
  await nowhere.end()
})

test('what the server itself says stays as it is: its code is for the caller', async () => {
  const guard = postgresGuard(pool, { table: 'no_such_schema.fence' })
  await expect(guard.enter(leaseOf(freshResource(), 1n))).rejects.toMatchObject({ code: '3F000' })
})

describe('a lease that ends', () => {
  lostLeaseTrials<PoolClient>('pg', () => ({
    transaction: (lease, work) => postgresGuard(pool).transaction(lease, work),
    write: (tx, resource, value) => tx.query(SET, [resource, value]),
    read: readPool,
  }))

  lostLeaseTrials<postgres.TransactionSql>('postgres.js', () => ({
    transaction: (lease, work) => postgresGuard(sql).transaction(lease, work),
    write: (tx, resource, value) => tx.unsafe(SET, [resource, value]),
    read: readPool,
  }))

  lostLeaseTrials<Transaction>('PGlite', () => ({
    transaction: (lease, work) => postgresGuard(lite).transaction(lease, work),
    write: (tx, resource, value) => tx.query(SET, [resource, value]),
    read: readLite,
  }))
})

import * as mariadb from 'mariadb'
import mysql from 'mysql2/promise'
import { createPool } from 'mysql2'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { mariadbGuard, type Fenced, type Isolation, type SqlGuard } from '../../src/guards/index.ts'
import { startMariadb, type MariadbServer } from '../../harness/servers/mariadb.ts'
import { until } from '../../harness/until.ts'
import { freshResource, gate, guardSuite, leaseOf, type Bench } from './suite.ts'
import { lostLeaseTrials } from './lost-lease.ts'

let server: MariadbServer
let pool: mariadb.Pool
let pool2: mysql.Pool

beforeAll(async () => {
  server = await startMariadb()
  const { host, port, user, database } = server
  pool = mariadb.createPool({ host, port, user, database, connectionLimit: 10 })
  // As unhelpful as its options can be.
  pool2 = mysql.createPool({
    host,
    port,
    user,
    database,
    connectionLimit: 10,
    rowsAsArray: true,
    namedPlaceholders: true,
  })
  await pool.query(`CREATE TABLE account (id varchar(100) PRIMARY KEY, balance int NOT NULL DEFAULT 0,
    fence_token bigint, fence_engine varchar(255)) ENGINE=InnoDB`)
})

afterAll(async () => {
  await pool?.end()
  await pool2?.end()
  await server?.stop()
})

const SET = 'INSERT INTO account (id, balance) VALUES (?, ?) ON DUPLICATE KEY UPDATE balance = VALUES(balance)'

async function read(resource: string): Promise<number> {
  const [row] = await pool.query<{ balance: number }[]>('SELECT balance FROM account WHERE id = ?', [resource])
  return row?.balance ?? 0
}

function mariadbBench(): Bench<SqlGuard<mariadb.PoolConnection>> {
  return {
    guard: (options) => mariadbGuard(pool, options),
    read,
    write: (guard, lease, value) =>
      guard.transaction(lease, async (tx) => {
        for (const resource of lease.resources) await tx.query(SET, [resource, value])
      }),
  }
}

guardSuite('mariadb, in a transaction of the guard', mariadbBench)

guardSuite('mariadb, in a transaction of our own', () => ({
  ...mariadbBench(),
  async write(guard, lease, value) {
    const connection = await pool.getConnection()
    try {
      await connection.beginTransaction()
      await guard.within(connection, lease)
      for (const resource of lease.resources) await connection.query(SET, [resource, value])
      await connection.commit()
    } catch (error) {
      await connection.rollback()
      throw error
    } finally {
      await connection.release()
    }
  },
}))

guardSuite('mysql2', () => ({
  guard: (options) => mariadbGuard(pool2, options),
  read,
  write: (guard, lease, value) =>
    guard.transaction(lease, async (tx) => {
      for (const resource of lease.resources) await tx.query({ sql: SET, namedPlaceholders: false }, [resource, value])
    }),
}))

type Run = (text: string, params: unknown[]) => Promise<unknown>
const runOnPool: Run = (text, params) => pool.query(text, params)

async function statement(
  run: Run,
  guard: SqlGuard<unknown>,
  lease: Fenced,
  { from, value }: { from?: string; value?: number } = {},
): Promise<void> {
  for (const resource of [...lease.resources].sort()) {
    await run('INSERT IGNORE INTO account (id) VALUES (?)', [resource])
    const fence = guard.column({ ...lease, resources: [resource] }, from === undefined ? {} : { from })
    const result = await run(
      `UPDATE account SET balance = coalesce(?, balance), ${fence.set} WHERE id = ? AND ${fence.where}`,
      [value ?? null, ...fence.setParams, resource, ...fence.whereParams],
    )
    await fence.check(result, () => run(`SELECT ${fence.select} FROM account WHERE id = ?`, [resource]))
  }
}

guardSuite<SqlGuard<unknown>>(
  'mariadb, columns',
  () => {
    return {
      guard: (options) => mariadbGuard(pool, options),
      read,
      enter: (guard, lease) => statement(runOnPool, guard, lease),
      adopt: (guard, lease, from) => statement(runOnPool, guard, lease, { from }),
      write: (guard, lease, value) => statement(runOnPool, guard, lease, { value }),
    }
  },
  { oneByOne: true },
)

test('columns that are 0 and empty at first: the first write passes and fences the row', async () => {
  await pool.query(`CREATE TABLE item (id int PRIMARY KEY, quantity int,
    fence_token bigint NOT NULL DEFAULT 0, fence_engine varchar(255)) ENGINE=InnoDB`)
  await pool.query('INSERT INTO item (id, quantity) VALUES (1, 0)')
  const write = async (token: bigint): Promise<number> => {
    const fence = mariadbGuard(pool).column(leaseOf('item:1', token))
    const result = await pool.query(
      `UPDATE item SET quantity = quantity + 1, ${fence.set} WHERE id = 1 AND ${fence.where}`,
      [...fence.setParams, ...fence.whereParams],
    )
    return fence.check(result, () => pool.query(`SELECT ${fence.select} FROM item WHERE id = 1 FOR UPDATE`))
  }
  expect(await write(5n)).toBe(1)
  await expect(write(4n)).rejects.toMatchObject({ code: 'STALE_TOKEN', seen: 5n })
})

test('mysql2, columns: the row count is read, and a token above 2^53 is not rounded', async () => {
  const guard = mariadbGuard(pool2)
  const run: Run = (sql, params) => pool2.query({ sql, namedPlaceholders: false, rowsAsArray: false }, params)
  const resource = freshResource()
  await statement(run, guard, leaseOf(resource, 2n ** 53n + 1n), { value: 1 })
  await expect(statement(run, guard, leaseOf(resource, 2n ** 53n), { value: 2 })).rejects.toMatchObject({
    token: 2n ** 53n,
    seen: 2n ** 53n + 1n,
  })
  expect(await read(resource)).toBe(1)
})

/** How many transactions of this server wait for another one. */
async function waiting(): Promise<number> {
  const [row] = await pool.query<{ n: bigint }[]>(
    "SELECT count(*) AS n FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
  )
  return Number(row!.n)
}

const ISOLATIONS: Isolation[] = ['read committed', 'repeatable read', 'serializable']

describe('two holders at once', () => {
  test.each(ISOLATIONS)('%s: the newer one waits for the older, then reads what it wrote', async (isolation) => {
    const guard = mariadbGuard(pool)
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
        const [row] = await tx.query('SELECT balance FROM account WHERE id = ?', [resource])
        await tx.query(SET, [resource, row.balance - 20])
      },
      { isolation },
    )
    await until(async () => (await waiting()) === 1, { what: 'the newer one waits', everyMs: 100 })
    leave.open()
    await older
    await newer
    expect(await read(resource)).toBe(50)
    expect(runs).toBe(1)
  })

  test.each(ISOLATIONS)('%s: the older one waits for the newer, and is refused', async (isolation) => {
    const guard = mariadbGuard(pool)
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
    await until(async () => (await waiting()) === 1, { what: 'the older one waits', everyMs: 100 })
    const outcome = older.catch((error: unknown) => error)
    leave.open()
    await newer
    expect(await outcome).toMatchObject({ code: 'STALE_TOKEN', seen: 2n })
    expect(runs).toBe(0)
  })

  test.each([
    ['when the fence was there before', 1n],
    ['when it was not', undefined],
  ])('what our own transaction read before it entered is not trusted, %s', async (_when, before) => {
    const guard = mariadbGuard(pool)
    const resource = freshResource()
    if (before !== undefined) await guard.enter(leaseOf(resource, before))
    const connection = await pool.getConnection()
    await connection.beginTransaction()
    await connection.query('SELECT * FROM account')
    await guard.transaction(leaseOf(resource, 2n), (tx) => tx.query(SET, [resource, 5]))
    // The server itself would go on: its snapshot still shows the balance of before.
    expect(await connection.query('SELECT * FROM account WHERE id = ?', [resource])).toHaveLength(0)
    await expect(guard.within(connection, leaseOf(resource, 3n))).rejects.toMatchObject({
      code: 'GUARD',
      transient: true,
      message: expect.stringContaining('had read before it entered'),
    })
    await connection.rollback()
    await connection.release()
  })
})

describe('a transaction', () => {
  test('gives what the work gives; its error rolls back the work and the fence', async () => {
    const guard = mariadbGuard(pool)
    const resource = freshResource()
    expect(await guard.transaction(leaseOf(resource, 1n), () => 'done')).toBe('done')
    const error = new Error('out of coffee')
    const failing = guard.transaction(leaseOf(resource, 5n), async (tx) => {
      await tx.query(SET, [resource, 5])
      throw error
    })
    await expect(failing).rejects.toBe(error)
    expect(await read(resource)).toBe(0)
    await guard.enter(leaseOf(resource, 2n))
    expect(pool.activeConnections()).toBe(0)
  })

  test('may enter for another lease within', async () => {
    const guard = mariadbGuard(pool)
    const [outer, inner] = [freshResource(), freshResource()]
    await guard.transaction(leaseOf(outer, 2n), async (tx) => {
      await guard.within(tx, leaseOf(inner, 3n))
      await tx.query(SET, [outer, 5])
    })
    expect(await read(outer)).toBe(5)
    await expect(guard.enter(leaseOf(inner, 2n))).rejects.toMatchObject({ seen: 3n })
  })

  test('is not undone by rolling back to a savepoint that the work can name', async () => {
    const guard = mariadbGuard(pool)
    const resource = freshResource()
    const work = guard.transaction(leaseOf(resource, 2n), (tx) => tx.query('ROLLBACK TO SAVEPOINT ringfence_guard'))
    await expect(work).rejects.toMatchObject({ errno: 1305 })
  })

  test('rejects when a statement of the work has committed it, or a deadlock ended it unnoticed', async () => {
    const guard = mariadbGuard(pool)
    const ended = { code: 'GUARD', message: expect.stringContaining('the work has ended the transaction') }
    const resource = freshResource()
    const committing = guard.transaction(leaseOf(resource, 1n), async (tx) => {
      await tx.query('CREATE TABLE IF NOT EXISTS on_the_way (id int)')
    })
    await expect(committing).rejects.toMatchObject(ended)
    const rolledBack = guard.transaction(leaseOf(resource, 1n), (tx) => tx.query('ROLLBACK'))
    await expect(rolledBack).rejects.toMatchObject(ended)
  })
})

describe('a transaction of our own', () => {
  test('must be open: a connection without one, and a pool, are refused', async () => {
    const guard = mariadbGuard(pool)
    const resource = freshResource()
    const connection = await pool.getConnection()
    await expect(guard.within(connection, leaseOf(resource, 1n))).rejects.toMatchObject({
      code: 'GUARD',
      message: 'within() needs a connection with an open transaction: BEGIN on it first, or use transaction()',
      transient: false,
    })
    await connection.release()
    await expect(guard.within(pool as never, leaseOf(resource, 9n))).rejects.toThrow('got a pool')
    await expect(guard.within(42 as unknown as Run, leaseOf(resource, 9n))).rejects.toThrow('transaction: expected')
  })

  test('of other software is entered by a function that runs a statement in it', async () => {
    const guard = mariadbGuard(pool)
    const resource = freshResource()
    const connection = await pool2.getConnection()
    await connection.beginTransaction()
    const run: Run = (sql, params) => connection.query({ sql, namedPlaceholders: false, rowsAsArray: false }, params)
    await guard.within(run, leaseOf(resource, 4n))
    await connection.commit()
    connection.release()
    await expect(guard.enter(leaseOf(resource, 3n))).rejects.toMatchObject({ seen: 4n })
  })
})

describe('the table', () => {
  test('is created by whoever needs it first, however many do at once; names are told apart by their bytes', async () => {
    const guard = mariadbGuard(pool, { table: 'ringfence.made_on_demand' })
    const names = ['café', 'cafe', 'CAFE', 'cafe ']
    await Promise.all(names.map((name, index) => guard.enter(leaseOf(name, BigInt(index + 1), 'Redis:é'))))
    for (const [index, name] of names.entries()) {
      await guard.enter(leaseOf(name, BigInt(index + 1), 'Redis:é'))
      await expect(guard.enter(leaseOf(name, 9n, 'redis:é'))).rejects.toMatchObject({ seenEngine: 'Redis:é' })
    }
  })

  test('that is missing in a transaction of our own is not created there, and the error says what to do', async () => {
    const guard = mariadbGuard(pool, { table: 'never_made' })
    const connection = await pool.getConnection()
    await connection.beginTransaction()
    await expect(guard.within(connection, leaseOf('a', 1n))).rejects.toMatchObject({
      code: 'GUARD',
      transient: false,
      message: expect.stringContaining('there is no table `never_made`; the guard does not create it'),
    })
    await connection.rollback()
    await connection.release()
  })
})

test('what is not a pool is refused, with what to pass instead', async () => {
  const single = await pool.getConnection()
  expect(() => mariadbGuard(single as never)).toThrow('so give a pool')
  await single.release()
  const callbacks = createPool({ host: server.host, port: server.port, user: 'root' })
  expect(() => mariadbGuard(callbacks as never)).toThrow('pass its promise()')
  callbacks.end()
  expect(() => mariadbGuard('mysql://localhost' as never)).toThrow('got a string: connect first')
})

test('a server that does not answer is given up in time, before the work, at its end, and after its error', async () => {
  await using frozen = await startMariadb()
  const { host, port, user, database } = frozen
  const own = mariadb.createPool({ host, port, user, database, connectionLimit: 3 })
  const guard = mariadbGuard(own, { requestTimeout: 300 })
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
  await until(() => own.activeConnections() === 0, { what: 'no connection is kept' })
  await own.end()
})

describe('a lease that ends', () => {
  lostLeaseTrials<mariadb.PoolConnection>('mariadb', () => ({
    transaction: (lease, work) => mariadbGuard(pool).transaction(lease, work),
    write: (tx, resource, value) => tx.query(SET, [resource, value]),
    read,
  }))

  lostLeaseTrials<mysql.PoolConnection>('mysql2', () => ({
    transaction: (lease, work) => mariadbGuard(pool2).transaction(lease, work),
    write: (tx, resource, value) => tx.query({ sql: SET, namedPlaceholders: false }, [resource, value]),
    read,
  }))
})

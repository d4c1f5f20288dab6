import { shown } from '../../duration.ts'
import { GuardError } from '../../errors.ts'
import {
  AnswerError,
  rowsIn,
  type RunStatement,
  type RunTransaction,
  type SqlQuery,
  type SqlRow,
  type TransactionalClient,
} from '../shared/sql/client.ts'
import { hasMethods, property, whatCame } from '../shared/shape.ts'
import { endedByWork, markName, type TransactionalLike } from '../shared/sql/transaction.ts'
import { errorNumber } from './errors.ts'

export interface MariadbAnswer {
  readonly rows: readonly SqlRow[]
  readonly affected: number
}

/** Runs one statement. Rejects with the driver's error, whose `errno` is the server's. */
export type RunMariadb = (sql: string) => Promise<MariadbAnswer>

/** A pool or connection of mariadb or mysql2, or any object with `query(sql)` that answers as one of them does. */
export interface MariadbLike {
  query(...args: never[]): unknown
}

/** A pool of mariadb, or of mysql2/promise. */
export interface MariadbPoolLike<Transaction> {
  getConnection(): Promise<Transaction>
  query(text: string, params?: unknown[]): Promise<unknown>
}

/** A client that can open a transaction on a connection of its own, and what it hands over for that. */
export type MariadbTransactional<Transaction> = MariadbPoolLike<Transaction> | TransactionalLike<Transaction>

interface MariadbConnection extends MariadbQueries {
  release(): unknown
  destroy(): void
}

interface MariadbPool {
  getConnection(): Promise<unknown>
}

const EXPECTED = 'a pool or connection of mariadb or mysql2, or an object with query(sql)'
const EXPECTED_POOL = 'a pool of mariadb or of mysql2/promise, or { query, transaction }'
const EXPECTED_OPEN = 'a connection with an open transaction'

/** Turns the user's own client into what the engine needs, or says at once what was expected and what came. */
export function recogniseMariadb(client: unknown): RunMariadb {
  // mysql2 with callbacks has its promises at hand.
  if (hasMethods(client, 'query', 'execute', 'promise')) return recogniseMariadb(client.promise())
  if (!hasMethods(client, 'query')) throw new TypeError(`client: expected ${EXPECTED}; got ${shown(client)}`)
  return async (sql) => answerOf(await send(client, sql, []))
}

/** The same for a client that opens transactions. */
export function recogniseTransactional(client: unknown): TransactionalClient {
  if (hasMethods(client, 'promise')) {
    throw new TypeError(`client: expected ${EXPECTED_POOL}, got one of mysql2 with callbacks: pass its promise()`)
  }
  if (hasMethods(client, 'query', 'getConnection')) {
    return { query: queryOf(client), transaction: onConnectionOf(client as unknown as MariadbPool) }
  }
  if (hasMethods(client, 'query', 'transaction')) {
    return { query: queryOf(client), transaction: byOwnMethod(client as unknown as TransactionalLike<unknown>) }
  }
  const single = hasMethods(client, 'query') ? ': a transaction needs a connection of its own, so give a pool' : ''
  throw new TypeError(`client: expected ${EXPECTED_POOL}, got ${whatCame(client)}${single}`)
}

/** Runs statements in a transaction that the user has opened, on a connection or by a function of the user's own. */
export function queryWithin(transaction: unknown): SqlQuery {
  if (hasMethods(transaction, 'getConnection')) {
    throw new TypeError(`transaction: expected ${EXPECTED_OPEN}, got a pool`)
  }
  if (hasMethods(transaction, 'query')) return queryOf(transaction)
  if (typeof transaction === 'function') {
    const run = transaction as RunStatement
    return async (text, params) => rowsIn(await run(text, [...params])) ?? []
  }
  throw new TypeError(
    `transaction: expected ${EXPECTED_OPEN}, or a function that runs a statement in it, got ${whatCame(transaction)}`,
  )
}

/** Our rows are objects, also where the user has set another shape. These are options of both drivers; each ignores the other's. */
const SHAPE = { rowsAsArray: false, nestTables: false, namedPlaceholders: false, metaAsArray: false }

interface MariadbQueries {
  query(statement: unknown, params?: unknown[]): unknown
}

/** Answers to what is not a SELECT differ, and guards do not read them. */
function queryOf(client: MariadbQueries): SqlQuery {
  return async (text, params) => rowsIn(await send(client, text, params)) ?? []
}

function send(client: MariadbQueries, sql: string, params: readonly unknown[]): PromiseLike<unknown> {
  const isDriver = hasMethods(client, 'execute') || hasMethods(client, 'getConnection')
  const statement = isDriver ? { sql, ...SHAPE } : sql
  const result = params.length === 0 ? client.query(statement) : client.query(statement, [...params])
  if (!hasMethods(result, 'then')) {
    throw new AnswerError(
      "expected query() to return a promise, got none: import 'mariadb' or 'mysql2/promise', not 'mariadb/callback'",
    )
  }
  return result as unknown as PromiseLike<unknown>
}

/** mariadb returns the rows, or an object that counts them; mysql2 returns an array of that and the columns. */
function answerOf(result: unknown): MariadbAnswer {
  const isPair = Array.isArray(result) && result.length === 2 && (Array.isArray(result[0]) || isCount(result[0]))
  const answer: unknown = isPair ? result[0] : result
  if (Array.isArray(answer)) return { rows: answer as SqlRow[], affected: 0 }
  if (isCount(answer)) return { rows: [], affected: Number(answer.affectedRows) }
  throw new AnswerError('expected query(sql) to answer with rows or with affectedRows')
}

function isCount(value: unknown): value is { affectedRows: unknown } {
  return property(value, 'affectedRows') !== undefined
}

function onConnectionOf(pool: MariadbPool): RunTransaction {
  return async (work, isolation) => {
    const given = await pool.getConnection()
    if (!hasMethods(given, 'query', 'release', 'destroy')) {
      throw new TypeError(
        `client: expected ${EXPECTED_POOL}, got a pool that gives no connection: is it one with callbacks?`,
      )
    }
    const connection: MariadbConnection = given
    const query = queryOf(connection)
    let isClean = false
    try {
      if (isolation !== undefined) await query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`, [])
      await query('START TRANSACTION', [])
      const result = await proved(query, () => work(connection, query)).catch(async (error: unknown) => {
        // Statements that have had no answer yet would delay the rollback. Ending the connection rolls back too.
        if (!(error instanceof GuardError)) isClean = await isRolledBack(query)
        throw error
      })
      await query('COMMIT', [])
      isClean = true
      return result
    } finally {
      if (isClean) await connection.release()
      else connection.destroy()
    }
  }
}

async function isRolledBack(query: SqlQuery): Promise<boolean> {
  try {
    await query('ROLLBACK', [])
    return true
  } catch {
    // The connection is broken, so the server rolls back by itself. The error of the work is the one to report.
    return false
  }
}

function byOwnMethod(client: TransactionalLike<unknown>): RunTransaction {
  return async <T>(work: (tx: unknown, query: SqlQuery) => Promise<T>, isolation?: string) => {
    if (isolation !== undefined) {
      throw new TypeError('isolation: expected none, because the transaction() that was given opens the transaction')
    }
    const result = await client.transaction((tx) => {
      const query = queryWithin(tx)
      return proved(query, () => work(tx, query))
    })
    return result as T
  }
}

/**
 * Several statements (CREATE, ALTER, TRUNCATE, …) commit on their way, and a deadlock rolls everything back. The rest of the
 * work would then run without the fence's lock, and nobody would know.
 */
async function proved<T>(query: SqlQuery, work: () => Promise<T>): Promise<T> {
  const isOpen = await markTransaction(query, 'transaction')
  const result = await work()
  if (await isOpen()) return result
  throw endedByWork()
}

/**
 * Marks the open transaction by a savepoint, which lives no longer than its transaction or, outside of one, than its own
 * statement. Returns a function that says whether this transaction is still open.
 */
export async function markTransaction(
  query: SqlQuery,
  purpose: 'transaction' | 'within',
): Promise<() => Promise<boolean>> {
  const name = markName(purpose)
  await query(`SAVEPOINT ${name}`, [])
  return async () => {
    try {
      await query(`RELEASE SAVEPOINT ${name}`, [])
      return true
    } catch (error) {
      // The savepoint does not exist.
      if (errorNumber(error) === 1305) return false
      throw error
    }
  }
}

/** Names come as bytes in hexadecimal: text would be converted to the character set of the connection. */
export function fromHex(hex: string): string {
  return Buffer.from(hex, 'hex').toString()
}

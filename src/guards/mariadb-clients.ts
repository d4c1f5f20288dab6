import { GuardError } from '../errors.ts'
import { hasMethods, property, rowsOf, whatCame, type Query } from './rows.ts'
import type { Database, Isolation, RunStatement, TransactionalLike } from './sql.ts'

/** A pool of mariadb, or of mysql2/promise. */
export interface MariadbPoolLike<Transaction> {
  getConnection(): Promise<Transaction>
  query(text: string, params?: unknown[]): Promise<unknown>
}

export type MariadbClient<Transaction> = MariadbPoolLike<Transaction> | TransactionalLike<Transaction>

const EXPECTED = 'a pool of mariadb or of mysql2/promise, or { query, transaction }'

/** The connections differ by the driver; the caller's types say which one it is. */
type AnyDatabase = Database<unknown>

export function mariadbDatabase<Transaction>(client: MariadbClient<Transaction>): Database<Transaction> {
  return recognise(client) as Database<Transaction>
}

function recognise(client: unknown): AnyDatabase {
  if (hasMethods(client, 'promise')) {
    throw new TypeError(`client: expected ${EXPECTED}, got one of mysql2 with callbacks: pass its promise()`)
  }
  if (hasMethods(client, 'query', 'getConnection')) return pooled(client as Pool)
  if (hasMethods(client, 'query', 'transaction')) return transactional(client as TransactionalLike<unknown>)
  const single = hasMethods(client, 'query') ? ': a transaction needs a connection of its own, so give a pool' : ''
  throw new TypeError(`client: expected ${EXPECTED}, got ${whatCame(client)}${single}`)
}

interface Connection {
  query(statement: object, params?: unknown[]): Promise<unknown>
  release(): unknown
  destroy(): void
}

interface Pool {
  query(statement: object, params?: unknown[]): Promise<unknown>
  getConnection(): Promise<Connection>
}

/** Whatever the user's connection is set to: parameters by place, rows as objects. */
function statement(text: string): object {
  return { sql: text, rowsAsArray: false, nestTables: false, namedPlaceholders: false }
}

function pooled(pool: Pool): AnyDatabase {
  return {
    query: async (text, params) => rowsOf(await pool.query(statement(text), [...params])),
    within,
    async transaction(isolation, work) {
      const connection = await pool.getConnection()
      if (!hasMethods(connection, 'query', 'release', 'destroy')) {
        throw new TypeError(
          `client: expected ${EXPECTED}, got a pool that gives no connection: is it one with callbacks?`,
        )
      }
      const query = queryOf(connection)
      let isClean = false
      try {
        if (isolation !== undefined) await query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`, [])
        await query('START TRANSACTION', [])
        const result = await watched(query, () => work(connection, query)).catch(async (error: unknown) => {
          // What has had no answer yet would hold up the rollback: ending the connection rolls back too.
          if (!(error instanceof GuardError)) isClean = await rolledBack(query)
          throw error
        })
        await query('COMMIT', [])
        isClean = true
        return result
      } finally {
        if (isClean) await connection.release()
        else connection.destroy()
      }
    },
  }
}

async function rolledBack(query: Query): Promise<boolean> {
  try {
    await query('ROLLBACK', [])
    return true
  } catch {
    // The connection is broken, so the server rolls back by itself; the error of the work is the one to tell.
    return false
  }
}

function transactional(client: TransactionalLike<unknown>): AnyDatabase {
  return {
    query: queryOf(client),
    within,
    async transaction<T>(isolation: Isolation | undefined, work: (transaction: unknown, query: Query) => Promise<T>) {
      if (isolation !== undefined) {
        throw new TypeError('isolation: expected none, because the transaction() that was given opens the transaction')
      }
      const result = await client.transaction((transaction) => {
        const query = queryOf(transaction)
        return watched(query, () => work(transaction, query))
      })
      return result as T
    },
  }
}

/**
 * Several statements (CREATE, ALTER, TRUNCATE, …) commit on their way, and a deadlock rolls all back; the rest of the work
 * would then be done without the fence's lock, and nobody would know.
 */
async function watched<T>(query: Query, work: () => Promise<T>): Promise<T> {
  const isOpen = await openTransaction(query)
  const result = await work()
  if (await isOpen()) return result
  throw new GuardError(
    'the transaction ended before the work did: by a statement that commits, or by a deadlock that the work passed over; what came after it was not guarded',
    [],
    { transient: false },
  )
}

const SAVEPOINT = 'ringfence_guard'

/** A savepoint outlives neither its transaction nor, outside of one, its own statement. */
export async function openTransaction(query: Query): Promise<() => Promise<boolean>> {
  await query(`SAVEPOINT ${SAVEPOINT}`, [])
  return async () => {
    try {
      await query(`RELEASE SAVEPOINT ${SAVEPOINT}`, [])
      return true
    } catch (error) {
      // The savepoint does not exist.
      if (errorNumber(error) === 1305) return false
      throw error
    }
  }
}

/** The server's error number; what wraps the drivers' errors keeps them as a cause. */
export function errorNumber(error: unknown): number {
  const number = property(error, 'errno')
  if (typeof number === 'number') return number
  const cause = property(error, 'cause')
  return cause === undefined ? 0 : errorNumber(cause)
}

function within(transaction: unknown): Query {
  if (hasMethods(transaction, 'getConnection')) {
    throw new TypeError('transaction: expected a connection with an open transaction, got a pool')
  }
  return queryOf(transaction)
}

/** Runs statements on a connection of either driver, or by a function of the user's own. */
function queryOf(connection: unknown): Query {
  if (hasMethods(connection, 'query', 'destroy')) {
    const client = connection as Connection
    return async (text, params) => rowsOf(await client.query(statement(text), [...params]))
  }
  if (hasMethods(connection, 'query')) {
    const client = connection as TransactionalLike<unknown>
    return async (text, params) => rowsOf(await client.query(text, [...params]))
  }
  if (typeof connection === 'function') {
    const run = connection as RunStatement
    return async (text, params) => rowsOf(await run(text, [...params]))
  }
  throw new TypeError(
    `transaction: expected a connection with an open transaction, or a function that runs a statement in it, got ${whatCame(connection)}`,
  )
}

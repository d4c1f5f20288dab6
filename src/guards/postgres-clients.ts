import { GuardError } from '../errors.ts'
import { hasMethods, property, rowsOf, whatCame, type Query } from './rows.ts'
import type { Database, Isolation, RunStatement, TransactionalLike } from './sql.ts'

/** A `Pool` of pg, or of what is used like it. (Declared by the last of its overloads, which tells what it connects.) */
export interface PgPoolLike<Transaction> {
  readonly totalCount: number
  connect(
    callback: (error: Error | undefined, client: Transaction | undefined, done: (release?: never) => void) => void,
  ): void
}

/** The `sql` of postgres.js. */
export interface PostgresJsLike<Transaction> {
  unsafe(text: string, params?: never[]): PromiseLike<unknown>
  begin(options: string, work: (transaction: Transaction) => Promise<unknown>): Promise<unknown>
}

export type PostgresClient<Transaction> =
  | PgPoolLike<Transaction>
  | PostgresJsLike<Transaction>
  | TransactionalLike<Transaction>

const EXPECTED = 'a Pool of pg, the sql of postgres.js, a PGlite, or { query, transaction }'

/** The connections differ by the driver; the caller's types say which one it is. */
type AnyDatabase = Database<unknown>

export function postgresDatabase<Transaction>(client: PostgresClient<Transaction>): Database<Transaction> {
  return recognise(client) as Database<Transaction>
}

function recognise(client: unknown): AnyDatabase {
  if (hasMethods(client, 'unsafe', 'begin')) return postgresJs(client as PostgresJs)
  if (hasMethods(client, 'query', 'transaction')) return transactional(client as TransactionalLike<unknown>)
  if (hasMethods(client, 'query', 'connect') && typeof property(client, 'totalCount') === 'number') {
    return pgPool(client as PgPool)
  }
  const single = hasMethods(client, 'query') ? ': a transaction needs a connection of its own, so give a pool' : ''
  throw new TypeError(`client: expected ${EXPECTED}, got ${whatCame(client)}${single}`)
}

const ignore = (): void => undefined

interface PgConnection {
  query(text: string, params?: unknown[]): Promise<unknown>
  release(destroy?: boolean): void
  on(event: 'error', listener: () => void): unknown
  off(event: 'error', listener: () => void): unknown
}

interface PgPool {
  query(text: string, params?: unknown[]): Promise<unknown>
  connect(): Promise<PgConnection>
}

function pgPool(pool: PgPool): AnyDatabase {
  return {
    query: async (text, params) => rowsOf(await pool.query(text, [...params])),
    within,
    async transaction(isolation, work) {
      const connection = await pool.connect()
      // The server may end an idle transaction while the work is elsewhere: that must not be an uncaught exception. What
      // is sent next fails, and says why.
      connection.on('error', ignore)
      let isClean = false
      try {
        await connection.query(isolation === undefined ? 'BEGIN' : `BEGIN ISOLATION LEVEL ${isolation}`)
        const result = await work(connection, queryOf(connection)).catch(async (error: unknown) => {
          // What has had no answer yet would hold up the rollback: ending the connection rolls back too.
          if (!(error instanceof GuardError)) isClean = await rolledBack(connection)
          throw error
        })
        throwIfRolledBack(await connection.query('COMMIT'))
        isClean = true
        return result
      } finally {
        connection.off('error', ignore)
        connection.release(!isClean)
      }
    },
  }
}

async function rolledBack(connection: PgConnection): Promise<boolean> {
  try {
    await connection.query('ROLLBACK')
    return true
  } catch {
    // The connection is broken, so the server rolls back by itself; the error of the work is the one to tell.
    return false
  }
}

/** COMMIT of a transaction in which a statement has failed, and the work went on regardless, succeeds as ROLLBACK. */
function throwIfRolledBack(result: unknown): void {
  if (property(result, 'command') !== 'ROLLBACK') return
  throw new GuardError('the transaction was rolled back, because one of its statements had failed', [])
}

interface PostgresJs {
  unsafe(text: string, params: unknown[]): PromiseLike<unknown>
  begin<T>(options: string, work: (transaction: PostgresJs) => Promise<T>): Promise<T>
}

function postgresJs(sql: PostgresJs): AnyDatabase {
  return {
    query: queryOf(sql),
    within,
    transaction: (isolation, work) =>
      sql.begin(isolation === undefined ? '' : `isolation level ${isolation}`, (transaction) =>
        work(transaction, queryOf(transaction)),
      ),
  }
}

function transactional(client: TransactionalLike<unknown>): AnyDatabase {
  return {
    query: queryOf(client),
    within,
    async transaction<T>(isolation: Isolation | undefined, work: (transaction: unknown, query: Query) => Promise<T>) {
      const result = await client.transaction(async (transaction) => {
        const query = queryOf(transaction)
        if (isolation !== undefined) await query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`, [])
        return work(transaction, query)
      })
      return result as T
    },
  }
}

function within(transaction: unknown): Query {
  if (typeof property(transaction, 'totalCount') === 'number' || hasMethods(transaction, 'begin')) {
    throw new TypeError(`transaction: expected a connection with an open transaction, got ${whatCame(transaction)}`)
  }
  return queryOf(transaction)
}

/** Runs statements on a connection of any driver, or by a function of the user's own. */
function queryOf(connection: unknown): Query {
  if (hasMethods(connection, 'unsafe')) {
    const sql = connection as PostgresJs
    return async (text, params) => rowsOf(await sql.unsafe(text, [...params]))
  }
  if (hasMethods(connection, 'query')) {
    const client = connection as PgConnection
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

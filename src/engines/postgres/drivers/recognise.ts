import { shown } from '../../../duration.ts'
import { hasMethods, property, whatCame } from '../../shared/shape.ts'
import {
  AnswerError,
  rowsIn,
  type RunStatement,
  type SqlQuery,
  type TransactionalClient,
} from '../../shared/sql/client.ts'
import type { TransactionalLike } from '../../shared/sql/transaction.ts'
import type { PostgresClient, PostgresConnection } from '../client.ts'
import { isPgClient, isPgPool, pgConnection, pgPool } from './pg.ts'
import { isPglite, isTransactional, pglite, transactional } from './pglite.ts'
import { queryOf, type QueryClient } from './query.ts'
import { isPostgresJs, isReservedPostgresJs, postgresJs, reservedPostgresJs } from './postgres-js.ts'

/**
 * A Pool or Client of pg, `sql` of postgres.js, a PGlite, or any object with `query(text, params)` that returns
 * `{ rows }` or an array of rows. It is checked when it is handed in.
 */
export type PostgresLike =
  | { query(...args: never[]): unknown }
  | { unsafe(...args: never[]): unknown; begin(...args: never[]): unknown }

/** A connected Client of pg, a client taken from a Pool, the result of `sql.reserve()` of postgres.js, or any object with `query`. */
export type PostgresConnectionLike = { query(...args: never[]): unknown } | { unsafe(...args: never[]): unknown }

/** A `Pool` of pg, or of software that is used like it. (Declared by the last of its overloads, which says what it connects.) */
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

/** A client that can open a transaction on a connection of its own, and what it hands over for that. */
export type PostgresTransactional<Transaction> =
  | PgPoolLike<Transaction>
  | PostgresJsLike<Transaction>
  | TransactionalLike<Transaction>

/** Turns the user's own client into what the engine needs, or says at once what was expected and what came. */
export function recogniseOrThrow(value: unknown): PostgresClient {
  const client = recognise(value)
  const why = client.unusable()
  if (why !== undefined) throw new TypeError(`client: expected one that can be used, but ${why}`)
  return client
}

function recognise(value: unknown): PostgresClient {
  if (isPgPool(value)) return pgPool(value)
  if (isPgClient(value)) return pgConnection(value)
  if (isPostgresJs(value)) return postgresJs(value)
  if (isPglite(value)) return pglite(value)
  if (isTransactional(value)) return transactional(value)
  if (hasMethods(value, 'query')) return plain(value)
  throw new TypeError(
    `client: expected a Pool or Client of pg, sql of postgres.js, a PGlite, or an object with query(text, params); got ${shown(value)}`,
  )
}

/** The same for a client that opens each transaction on a connection of its own. */
export function recogniseTransactional(value: unknown): TransactionalClient {
  const client = hasMethods(value, 'query') || hasMethods(value, 'unsafe') ? recogniseOrThrow(value) : undefined
  if (client?.transaction !== undefined && !isPgClient(value)) {
    return { query: client.query, transaction: client.transaction }
  }
  const single = client === undefined ? '' : ': a transaction needs a connection of its own, so give a pool'
  throw new TypeError(
    `client: expected a Pool of pg, the sql of postgres.js, a PGlite, or { query, transaction }, got ${whatCame(value)}${single}`,
  )
}

const EXPECTED_OPEN = 'a connection with an open transaction'

/** Runs statements in a transaction that the user has opened, on a connection or by a function of the user's own. */
export function queryWithin(transaction: unknown): SqlQuery {
  if (typeof property(transaction, 'totalCount') === 'number' || hasMethods(transaction, 'begin')) {
    throw new TypeError(`transaction: expected ${EXPECTED_OPEN}, got ${whatCame(transaction)}`)
  }
  const run = statementRunner(transaction)
  // Answers to what is not a SELECT differ, and guards do not read them.
  return async (text, params) => rowsIn(await run(text, [...params])) ?? []
}

function statementRunner(transaction: unknown): (text: string, params: unknown[]) => unknown {
  for (const method of ['unsafe', 'query']) {
    if (hasMethods(transaction, method)) {
      const run = transaction[method] as RunStatement
      return (text, params) => run.call(transaction, text, params)
    }
  }
  if (typeof transaction === 'function') return transaction as RunStatement
  throw new TypeError(
    `transaction: expected ${EXPECTED_OPEN}, or a function that runs a statement in it, got ${whatCame(transaction)}`,
  )
}

/** The same for a connection that `connect` has given us for ourselves. */
export function recogniseConnection(value: unknown): PostgresConnection {
  if (isPgPool(value) || isPostgresJs(value)) {
    throw new AnswerError('expected one connection, got a pool: use a Client of pg, pool.connect() or sql.reserve()')
  }
  if (isPglite(value)) {
    throw new AnswerError('expected a connection of its own, got a PGlite, which has only one: use postgres(db)')
  }
  if (isPgClient(value)) return pgConnection(value)
  if (isReservedPostgresJs(value)) return reservedPostgresJs(value)
  if (hasMethods(value, 'query'))
    return { ...plain(value), announcedPid: async () => undefined, end: () => endOf(value) }
  throw new AnswerError(
    `expected a connected Client of pg, pool.connect(), sql.reserve() or an object with query(text, params); got ${shown(value)}`,
  )
}

function plain(client: object): PostgresClient {
  return { driver: 'own', unusable: () => undefined, query: queryOf(client as QueryClient) }
}

async function endOf(connection: object): Promise<void> {
  for (const name of ['end', 'close', 'release']) {
    if (hasMethods(connection, name)) return void (await (connection[name] as () => unknown).call(connection))
  }
}

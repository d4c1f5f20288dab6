import { shown } from '../../../duration.ts'
import type { PostgresClient, PostgresConnection } from '../client.ts'
import { AnswerError } from '../errors.ts'
import { isPgClient, isPgPool, pgConnection, pgPool } from './pg.ts'
import { isPglite, pglite } from './pglite.ts'
import { isPostgresJs, isReservedPostgresJs, postgresJs, reservedPostgresJs } from './postgres-js.ts'
import { hasMethods, rowsOf } from './shape.ts'

/**
 * A Pool or Client of pg, `sql` of postgres.js, a PGlite, or any object with `query(text, params)` that answers with
 * `{ rows }` or an array of rows. What is used of it is looked at when it comes.
 */
export type PostgresLike =
  | { query(...args: never[]): unknown }
  | { unsafe(...args: never[]): unknown; begin(...args: never[]): unknown }

/** A connected Client of pg, a client taken from a Pool, what `sql.reserve()` of postgres.js gives, or any with `query`. */
export type PostgresConnectionLike = { query(...args: never[]): unknown } | { unsafe(...args: never[]): unknown }

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
  if (hasMethods(value, 'query')) return plain(value)
  throw new TypeError(
    `client: expected a Pool or Client of pg, sql of postgres.js, a PGlite, or an object with query(text, params); got ${shown(value)}`,
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
  if (hasMethods(value, 'query')) return { ...plain(value), toldPid: async () => undefined, end: () => endOf(value) }
  throw new AnswerError(
    `expected a connected Client of pg, pool.connect(), sql.reserve() or an object with query(text, params); got ${shown(value)}`,
  )
}

function plain(client: { query(text: string, params: unknown[]): unknown }): PostgresClient {
  return {
    driver: 'own',
    unusable: () => undefined,
    query: async (text, params) => rowsOf(await client.query(text, [...params])),
  }
}

async function endOf(connection: object): Promise<void> {
  for (const name of ['end', 'close', 'release']) {
    if (hasMethods(connection, name)) return void (await connection[name]!.call(connection))
  }
}

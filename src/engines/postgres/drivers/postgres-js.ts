import { hasMethods } from '../../shared/shape.ts'
import { rowsOf, type SqlQuery } from '../../shared/sql/client.ts'
import type { ListenConnection, PostgresClient, PostgresConnection } from '../client.ts'
import { inTransaction, type BeginsTransactions } from './postgres-js-transaction.ts'

interface Unsafe {
  /** Runs when it is awaited. */
  unsafe(text: string): PromiseLike<unknown>
}

interface PostgresJs extends Unsafe, BeginsTransactions {
  listen(
    channel: string,
    notified: (payload: string) => void,
    onListen: () => void,
  ): Promise<{ unlisten(): Promise<unknown> }>
}

interface ReservedPostgresJs extends Unsafe {
  release(): void
}

export function isPostgresJs(value: unknown): value is PostgresJs {
  return typeof value === 'function' && hasMethods(value, 'unsafe', 'begin', 'listen')
}

export function isReservedPostgresJs(value: unknown): value is ReservedPostgresJs {
  return typeof value === 'function' && hasMethods(value, 'unsafe', 'release')
}

export function postgresJs(sql: PostgresJs): PostgresClient {
  /**
   * postgres.js listens again by itself after every failure, also the first one, and never lets go of a listener whose
   * first try failed. So there is one for as long as the engine lives, and a notification of our own shows whether it works.
   */
  let connection: Promise<ListenConnection> | undefined
  return {
    driver: 'postgres.js',
    unusable: () => undefined,
    query: queryOf(sql),
    listen(channel, listener) {
      let isFirst = true
      connection ??= sql
        .listen(channel, listener.notified, () => {
          if (!isFirst) listener.back()
          isFirst = false
        })
        .then(
          (listening) => ({ close: async () => void (await listening.unlisten()) }),
          () => ({ close: async () => undefined }),
        )
      return connection
    },
    transaction: (work, isolation) => inTransaction(sql, work, isolation),
  }
}

export function reservedPostgresJs(sql: ReservedPostgresJs): PostgresConnection {
  return {
    driver: 'postgres.js',
    async announcedPid() {
      const { state } = (await sql.unsafe('SELECT 1')) as { state?: { pid?: number } }
      return state?.pid
    },
    unusable: () => undefined,
    query: queryOf(sql),
    end: async () => sql.release(),
  }
}

/**
 * Before its parameters, postgres.js sends a statement alone and waits for its description: a round trip of its own. Only what it
 * has prepared on that connection spares it that. Behind PgBouncer 1.18 in transaction mode prepared statements failed: some were
 * not found, and some answers had other columns. So the parameters are written into the statement.
 */
function queryOf(sql: Unsafe): SqlQuery {
  return async (text, params) => rowsOf(await sql.unsafe(withLiterals(text, params)))
}

/** As bytes in hexadecimal, so that no setting of quotes, backslashes or encodings can make a value a statement. */
export function withLiterals(text: string, params: Parameters<SqlQuery>[1]): string {
  return text.replaceAll(/\$(\d+)/g, (_, number: string) => literal(params[Number(number) - 1]))
}

function literal(value: string | Uint8Array | null | undefined): string {
  if (value === undefined) throw new TypeError('a statement has more parameters than values')
  if (value === null) return 'NULL'
  const bytes = `decode('${Buffer.from(value).toString('hex')}', 'hex')`
  return typeof value === 'string' ? `convert_from(${bytes}, 'UTF8')` : bytes
}

import type { PostgresClient } from '../client.ts'
import { hasMethods, rowsOf } from './shape.ts'

interface Query {
  query(text: string, params?: unknown[]): Promise<unknown>
}

interface Pglite extends Query {
  readonly closed?: boolean
  listen(channel: string, heard: (payload: string) => void): Promise<() => Promise<void>>
  transaction<T>(work: (tx: Query) => Promise<T>): Promise<T>
}

export function isPglite(value: unknown): value is Pglite {
  return hasMethods(value, 'query', 'exec', 'listen', 'transaction')
}

/** PostgreSQL within this process: one connection, on which statements wait for one another. */
export function pglite(db: Pglite): PostgresClient {
  return {
    driver: 'pglite',
    unusable: () => (db.closed === true ? 'the database was closed' : undefined),
    query: queryOf(db),
    async listen(channel, ears) {
      const unlisten = await db.listen(channel, ears.heard)
      return { close: unlisten }
    },
    transaction: (work) => db.transaction((tx) => work(tx, queryOf(tx))),
  }
}

function queryOf(client: Query): PostgresClient['query'] {
  return async (text, params) => rowsOf(await client.query(text, [...params]))
}

import { rowsOf, type SqlQuery } from '../../shared/sql/client.ts'

/** A pool, client or transaction of pg, a PGlite or its transaction, or other software with the same method. */
export interface QueryClient {
  query(text: string, params?: unknown[]): Promise<unknown>
}

export function queryOf(client: QueryClient): SqlQuery {
  return async (text, params) => rowsOf(await client.query(text, [...params]))
}

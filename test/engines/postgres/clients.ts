import { PGlite } from '@electric-sql/pglite'
import { Client, Pool, type PoolConfig } from 'pg'
import postgresJs from 'postgres'
import type { PostgresConnectionLike, PostgresLike } from '../../../src/engines/postgres/index.ts'

export interface Connected {
  readonly client: PostgresLike
  close(): Promise<unknown>
}

/** Every kind of client for one server. */
export const CLIENTS: Record<string, (url: string) => Promise<Connected>> = {
  'a Pool of pg': async (url) => {
    const pool = openPool({ connectionString: url })
    return { client: pool, close: () => pool.end() }
  },
  'a Client of pg': async (url) => {
    const client = await connectedClient(url)
    return { client, close: () => client.end() }
  },
  'postgres.js, columns in camel case': async (url) => {
    const sql = postgresJs(url, { transform: postgresJs.camel, onnotice: () => undefined })
    return { client: sql, close: () => sql.end({ timeout: 1 }) }
  },
  'an object with query(text, params)': async (url) => {
    const pool = openPool({ connectionString: url })
    return { client: { query: (text: string, params: string[]) => pool.query(text, params) }, close: () => pool.end() }
  },
}

/** Servers are stopped while their clients are there: an error that nobody listens to would end the test run. */
export function openPool(config: PoolConfig): Pool {
  return new Pool(config).on('error', () => undefined)
}

export async function connectedClient(url: string): Promise<Client> {
  const client = new Client(url)
  client.on('error', () => undefined)
  await client.connect()
  return client
}

export async function openPglite(): Promise<PGlite> {
  return PGlite.create()
}

/** Connections for leases that end with them. */
export const CONNECTIONS: Record<
  string,
  (url: string) => { connect(): Promise<PostgresConnectionLike>; end(): Promise<unknown> }
> = {
  'a Client of pg': (url) => ({ connect: () => connectedClient(url), end: async () => undefined }),
  'a client of a Pool of pg': (url) => {
    const pool = openPool({ connectionString: url })
    return { connect: () => pool.connect(), end: () => pool.end() }
  },
  'a reserved connection of postgres.js': (url) => {
    const sql = postgresJs(url, { onnotice: () => undefined })
    return { connect: () => sql.reserve(), end: () => sql.end({ timeout: 1 }) }
  },
  'an object with query(text, params)': (url) => ({
    async connect() {
      const client = await connectedClient(url)
      return { query: (text: string, params: string[]) => client.query(text, params), end: () => client.end() }
    },
    end: async () => undefined,
  }),
}

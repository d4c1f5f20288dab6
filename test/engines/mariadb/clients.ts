import { createConnection as createMariadb, createPool as createMariadbPool } from 'mariadb'
import { createConnection as createMysql2, createPool as createMysql2Pool } from 'mysql2/promise'
import type { MariadbLike } from '../../../src/engines/mariadb/index.ts'
import type { MariadbServer } from '../../../harness/servers/mariadb.ts'

export interface Connected {
  readonly client: MariadbLike
  close(): Promise<unknown>
}

/** Every kind of client for one server, also with the options that change what rows look like. */
export const CLIENTS: Record<string, (server: MariadbServer) => Promise<Connected>> = {
  'a pool of mariadb': async (server) => {
    const pool = createMariadbPool({ ...addressOf(server), connectionLimit: 10 })
    return { client: pool, close: () => pool.end() }
  },
  'a connection of mariadb, rows as arrays': async (server) => {
    const connection = await createMariadb({ ...addressOf(server), rowsAsArray: true, namedPlaceholders: true })
    return { client: connection, close: () => connection.end() }
  },
  'a pool of mysql2': async (server) => {
    const pool = createMysql2Pool(addressOf(server))
    return { client: pool, close: () => pool.end() }
  },
  'a connection of mysql2, rows as arrays': async (server) => {
    const connection = await createMysql2({ ...addressOf(server), rowsAsArray: true, charset: 'latin1' })
    return { client: connection, close: () => connection.end() }
  },
}

export function addressOf({ host, port, user, database }: MariadbServer) {
  return { host, port, user, database }
}

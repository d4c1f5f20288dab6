import { given } from '../../arguments.ts'
import { mariadb } from '../../engines/mariadb/index.ts'
import { postgres } from '../../engines/postgres/index.ts'
import { parseAddress, splitParameters } from './address.ts'
import type { OpenedEngine } from './connect.ts'
import { loadDriver } from './driver.ts'
import { usage } from '../exit-codes.ts'
import { redacted } from '../settings.ts'

const OPTIONS = ['table', 'requestTimeout', 'drift']

/** With TLS and from afar. */
const CONNECT_MS = 5000
/** Before the engine's own time-out of 3 s. */
const ACQUIRE_MS = 2500

interface OpenedPool {
  readonly pool: Pool
  /** The parameters of the URL that are ours. */
  readonly options: Record<string, string | number>
}

interface Pool {
  query(...args: never[]): unknown
  end(): Promise<unknown>
  on?(event: 'error', listener: (error: Error) => void): unknown
}

/** `postgres://user@host/database`; parameters that are not ours are the driver's, such as sslmode. */
export async function connectPostgres(url: string): Promise<OpenedEngine> {
  const { pool, options } = await openPostgres(url, OPTIONS)
  return { engine: postgres(pool, options), close: () => pool.end() }
}

export async function openPostgres(url: string, names: readonly string[]): Promise<OpenedPool> {
  const { options, rest } = splitParameters(url, names)
  const { module } = await loadDriver(['pg'], 'PostgreSQL')
  const Pool = ((module['default'] ?? module) as Record<string, unknown>)['Pool'] as new (options: object) => Pool
  // Without a time-out, the end of the pool would wait forever for a connection to a silent server.
  const pool = new Pool({ connectionString: rest, connectionTimeoutMillis: CONNECT_MS })
  return { pool: quiet(pool), options }
}

/** `mariadb://user@host/database`, also `mysql://`. */
export async function connectMariadb(url: string): Promise<OpenedEngine> {
  const { pool, options } = await openMariadb(url, OPTIONS)
  return { engine: mariadb(pool, options), close: () => pool.end() }
}

export async function openMariadb(url: string, names: readonly string[]): Promise<OpenedPool> {
  const { user, password, hosts, path, parameters } = parseAddress(url, {
    port: 3306,
    example: 'mariadb://user@host/database',
  })
  const options = parameters.take(names)
  const { ssl } = parameters.take(['ssl'])
  parameters.done()
  if (hosts.length > 1) throw usage(`--engine: expected one host, got ${hosts.length} in ${redacted(url)}`)
  const { name, module } = await loadDriver(['mariadb', 'mysql2/promise'], 'MariaDB')
  const createPool = (module['createPool'] ?? (module['default'] as Record<string, unknown>)['createPool']) as (
    options: object,
  ) => Pool
  const pool = createPool({
    ...hosts[0],
    // The driver tries a refused connection again until then, and the reason is heard only if the engine still listens.
    ...(name === 'mariadb'
      ? { acquireTimeout: ACQUIRE_MS, connectTimeout: CONNECT_MS }
      : { connectTimeout: CONNECT_MS }),
    ...given({ user, password }),
    ...(path === '' ? {} : { database: path }),
    ...(ssl === undefined || ssl === 'false' ? {} : { ssl: name === 'mariadb' ? true : {} }),
  })
  return { pool: quiet(pool), options }
}

/** An error of a connection that nobody uses is nobody's; one that is used tells who uses it. */
function quiet(pool: Pool): Pool {
  pool.on?.('error', () => undefined)
  return pool
}

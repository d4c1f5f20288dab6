import { isIP } from 'node:net'
import { given } from '../../arguments.ts'
import { mariadb } from '../../engines/mariadb/index.ts'
import { postgres } from '../../engines/postgres/index.ts'
import { certificate, filesOf, parseAddress, splitParameters, type Address, type Host } from './address.ts'
import type { OpenedEngine } from './connect.ts'
import { asUsage, loadDriver } from './driver.ts'
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

interface PgModule {
  readonly Client: new (options: object) => { readonly port: number }
  readonly Pool: new (options: object) => Pool
}

/** `postgres://user@host/database`; parameters that are not ours are the driver's, such as sslmode. */
export async function connectPostgres(url: string): Promise<OpenedEngine> {
  const { pool, options } = await openPostgres(url, OPTIONS)
  return { engine: postgres(pool, options), close: () => pool.end() }
}

export async function openPostgres(url: string, names: readonly string[]): Promise<OpenedPool> {
  const { options, rest } = splitParameters(url, names)
  const connectionString = withStrictTls(rest)
  const { module } = await loadDriver(['pg'], 'PostgreSQL')
  const { Client, Pool } = (module['default'] ?? module) as PgModule
  // The pool reads the URL with its first connection; a client that never connects says at once what is wrong with it.
  const { port } = asUsage(url, 'pg', () => new Client({ connectionString }))
  if (!(port >= 1 && port <= 65_535)) throw usage(`--engine: expected a port from 1 to 65535, got ${redacted(url)}`)
  // Without a time-out, the end of the pool would wait forever for a connection to a silent server.
  const pool = new Pool({ connectionString, connectionTimeoutMillis: CONNECT_MS })
  return { pool: quiet(pool), options }
}

const STRICT = ['require', 'verify-ca', 'verify-full']

/**
 * TLS with a certificate that is checked, or none: what `require` means differs between libpq, pg 8 (which warns on our stderr) and
 * pg 9, and `prefer` goes on in plain text in libpq. Those who ask for libpq's ways by `uselibpqcompat` have them.
 */
function withStrictTls(url: string): string {
  const { options, rest } = splitParameters(url, [
    'sslmode',
    'ssl',
    'sslrootcert',
    'sslcert',
    'sslkey',
    'uselibpqcompat',
  ])
  const { sslmode, ssl, uselibpqcompat } = options
  if (
    sslmode !== undefined &&
    ![...STRICT, 'disable', 'no-verify'].includes(String(sslmode)) &&
    uselibpqcompat !== 'true'
  ) {
    throw usage(
      `--engine: sslmode: expected disable, require, verify-ca, verify-full or no-verify, got '${sslmode}' in ${redacted(url)}`,
      'require is TLS with a certificate that is checked; nothing falls back to plain text',
    )
  }
  if (ssl !== undefined && !['true', '1', '0', 'no-verify'].includes(String(ssl)))
    throw usage(`--engine: ssl: expected true, 1, 0 or no-verify, got '${ssl}'`, 'sslmode=disable is without TLS')
  // The authorities of the system are the default of Node; pg would look for a file of that name.
  if (options['sslrootcert'] === 'system') delete options['sslrootcert']
  filesOf(options, ['sslrootcert', 'sslcert', 'sslkey'])
  if (uselibpqcompat !== 'true' && STRICT.includes(String(sslmode))) options['sslmode'] = 'verify-full'
  const parameters = Object.entries(options).map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
  if (parameters.length === 0) return rest
  return `${rest}${rest.includes('?') ? '&' : '?'}${parameters.join('&')}`
}

/** `mariadb://user@host/database`, also `mysql://`. */
export async function connectMariadb(url: string): Promise<OpenedEngine> {
  const { pool, options } = await openMariadb(url, OPTIONS)
  return { engine: mariadb(pool, options), close: () => pool.end() }
}

export async function openMariadb(url: string, names: readonly string[]): Promise<OpenedPool> {
  const address = parseAddress(url, { port: 3306, example: 'mariadb://user@host/database' })
  const { user, password, hosts, path, parameters } = address
  const options = parameters.take(names)
  const tls = mariadbTls(address)
  parameters.done()
  if (hosts.length > 1) throw usage(`--engine: expected one host, got ${hosts.length} in ${redacted(url)}`)
  const { name, module } = await loadDriver(['mariadb', 'mysql2/promise'], 'MariaDB')
  const createPool = (module['createPool'] ?? (module['default'] as Record<string, unknown>)['createPool']) as (
    options: object,
  ) => Pool
  const settings = mariadbSettings(name, hosts[0]!, tls)
  const pool = createPool({ ...settings, ...given({ user, password }), ...(path === '' ? {} : { database: path }) })
  return { pool: quiet(pool), options }
}

/** Undefined: without TLS. A URL that names a certificate wants TLS. */
function mariadbTls({ parameters }: Address): Record<string, Buffer> | undefined {
  const { ssl, ...files } = parameters.take(['ssl', 'ca', 'cert', 'key'])
  if (ssl !== undefined && ssl !== 'true' && ssl !== 'false')
    throw usage(`--engine: ssl: expected true or false, got '${ssl}'`)
  const named = Object.keys(files)
  if (ssl === 'false' && named.length > 0)
    throw usage(`--engine: expected ssl=true with ${named.join(', ')}, got ssl=false`)
  if (ssl !== 'true' && named.length === 0) return undefined
  return Object.fromEntries(Object.entries(files).map(([name, file]) => [name, certificate(name, String(file))]))
}

export function mariadbSettings(driver: string, host: Host, tls: Record<string, Buffer> | undefined): object {
  if (driver === 'mariadb') {
    // The driver tries a refused connection again until then, and the reason is heard only if the engine still listens.
    const times = { acquireTimeout: ACQUIRE_MS, connectTimeout: CONNECT_MS }
    // Without the host, the certificate would have to be one of 'localhost'.
    return { ...host, ...times, ...(tls === undefined ? {} : { ssl: { ...tls, host: host.host } }) }
  }
  if (tls !== undefined && isIP(host.host) !== 0) {
    throw usage(
      `--engine: expected the name of a host, got ${host.host}: the driver mysql2 cannot check the certificate of an address`,
      'name the host as its certificate does, or npm install mariadb',
    )
  }
  // mysql2 checks who signed a certificate, and whose it is only on request.
  return {
    ...host,
    connectTimeout: CONNECT_MS,
    ...(tls === undefined ? {} : { ssl: { ...tls, verifyIdentity: true } }),
  }
}

/** An error of a connection that nobody uses is nobody's; one that is used tells who uses it. */
function quiet(pool: Pool): Pool {
  pool.on?.('error', () => undefined)
  return pool
}

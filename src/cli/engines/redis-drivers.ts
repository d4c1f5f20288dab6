import { given } from '../../arguments.ts'
import { EXIT, Failure } from '../exit-codes.ts'
import type { Host, Login } from './address.ts'
import { loadDriver } from './driver.ts'

/** A client of one server, of a master behind sentinels, or of a Cluster. */
export interface OpenClient {
  readonly client: unknown
  /** Resolves when it is connected; rejects when the first attempt has failed. */
  readonly ready: Promise<unknown>
  readonly close: () => void
}

/** How a server is entered. */
export interface ServerAccess extends Login {
  /** Undefined: without TLS. */
  readonly tls: Record<string, Buffer> | undefined
  readonly database: number
}

export interface SentinelGroup {
  readonly sentinels: readonly Host[]
  /** By which the sentinels know the master. */
  readonly name: string
  /** Theirs; the master has its own. */
  readonly login: Login
}

export interface RedisDriver {
  server(host: Host, access: ServerAccess): OpenClient
  sentinel(group: SentinelGroup, access: ServerAccess): OpenClient
  cluster(hosts: readonly Host[], access: ServerAccess): OpenClient
}

/** The driver of the user's choice, as far as there is one: that of the scheme first. */
export async function redisDriver(scheme: string): Promise<RedisDriver> {
  const isValkey = scheme.startsWith('valkey')
  const names = isValkey ? ['iovalkey', 'ioredis', 'redis'] : ['ioredis', 'redis', 'iovalkey']
  const { name, module } = await loadDriver(names, isValkey ? 'Valkey' : 'Redis')
  return name === 'redis' ? nodeRedisDriver(module) : ioredisDriver(module)
}

interface IoredisConnection {
  on(event: string, listener: (error: Error) => void): unknown
  select(database: number): Promise<unknown>
  disconnect(): void
}

interface IoredisModule {
  readonly Redis?: new (options: object) => IoredisConnection
  readonly default?: new (options: object) => IoredisConnection
  readonly Cluster: new (nodes: readonly object[], options: object) => IoredisConnection
}

/** After that long without an answer the connection to a master behind sentinels is opened anew. */
const SILENT_MS = 4000

/** How long a node of a Cluster may take to tell its slots before the next is asked. */
const SLOTS_MS = 2000

function ioredisOptions({ user, password, tls, database }: ServerAccess): object {
  return {
    db: database,
    ...given({ username: user, password, tls }),
    // A refused connection is reported at once; whether to try again is the core's decision.
    maxRetriesPerRequest: 0,
    // It would warn on our stderr where the user may not ask for INFO; a server that still loads says so itself.
    enableReadyCheck: false,
  }
}

/** ioredis, and iovalkey, which was made from it. */
export function ioredisDriver(module: unknown): RedisDriver {
  const { Redis, default: byDefault, Cluster } = module as IoredisModule
  const Client = Redis ?? byDefault!
  return {
    server: (host, access) =>
      connecting(new Client({ ...ioredisOptions(access), ...host }), access.database, `${host.host}:${host.port}`),
    sentinel: ({ sentinels, name, login }, access) => {
      const client = new Client({
        ...ioredisOptions(access),
        sentinels,
        name,
        ...given({ sentinelUsername: login.user, sentinelPassword: login.password, sentinelTLS: access.tls }),
        // Without, tls would be ignored, and the master asked in plain text.
        enableTLSForSentinelMode: access.tls !== undefined,
        // Without, it stays with a master that is frozen when the sentinels have elected another one. (Its failoverDetector
        // would do that, too, but it prints what goes wrong between it and each sentinel.)
        socketTimeout: SILENT_MS,
      })
      return withReasons(connecting(client, access.database, `the master ${name}`), client, () => {
        return new Client({
          ...ioredisOptions({ ...access, ...login, database: 0 }),
          ...sentinels[0],
          retryStrategy: null,
        })
      })
    },
    cluster: (hosts, access) => {
      const { db: _, ...redisOptions } = ioredisOptions(access) as { db: number }
      const client = new Cluster(hosts, {
        redisOptions,
        enableReadyCheck: false,
        slotsRefreshTimeout: SLOTS_MS,
        // It would connect to addresses instead of names, and a certificate is made for a name.
        ...(access.tls === undefined ? {} : { dnsLookup: keepName }),
      })
      return withReasons(connecting(client, 0, 'the Cluster'), client, () => {
        return new Client({ ...redisOptions, ...hosts[0], retryStrategy: null })
      })
    },
  }
}

function keepName(name: string, callback: (error: null, name: string) => void): void {
  callback(null, name)
}

/**
 * Of a sentinel or a node of a Cluster that cannot be reached ioredis says only that the connection was closed. One connection of
 * our own finds out why; `lastNodeError` is where the driver puts such a reason, and where the engine looks for it.
 */
function withReasons(opened: OpenClient, group: IoredisConnection, probe: () => IoredisConnection): OpenClient {
  let last: GroupFailure | undefined
  let reason: Error | undefined
  let probing: IoredisConnection | undefined
  const explain = (): void => {
    if (last !== undefined && reason !== undefined && CLOSED.test(last.lastNodeError?.message ?? last.message))
      last.lastNodeError = reason
  }
  group.on('error', (error) => {
    last = error
    explain()
    if (probing !== undefined) return
    probing = probe()
    const done = (why?: Error): void => {
      reason = why
      explain()
      probing?.disconnect()
    }
    probing.on('error', done)
    probing.on('ready', () => done())
  })
  const close = (): void => {
    opened.close()
    probing?.disconnect()
  }
  return { ...opened, close }
}

const CLOSED = /Connection is closed\.?$/

interface GroupFailure extends Error {
  lastNodeError?: Error
}

function connecting(client: IoredisConnection, database: number, at: string): OpenClient {
  const ready = new Promise((resolve, reject) => {
    const failed = (error: Error): void => {
      if (database === 0 || !NO_DATABASE.test(error.message)) return reject(error)
      client.disconnect()
      reject(withoutDatabase(database, at, error))
    }
    client.on('error', failed)
    // The driver goes on in database 0 when its own SELECT is refused, also when it connects anew.
    client.on('ready', () => void (database === 0 ? Promise.resolve() : client.select(database)).then(resolve, failed))
  })
  return { client, ready, close: () => client.disconnect() }
}

/** What a SELECT is refused with: no such database, no right to it, or a node of a cluster, which has one alone. */
const NO_DATABASE = /DB index|'select' command|SELECT is not allowed/

function withoutDatabase(database: number, at: string, error: Error): Failure {
  return new Failure(
    EXIT.engine,
    `the database ${database} of ${at} cannot be used: ${error.message}`,
    'name a database in the URL that this server has and this user may select; without one it is 0',
    error,
  )
}

interface NodeRedisConnection {
  on(event: 'error', listener: (error: Error) => void): unknown
  connect(): Promise<unknown>
  destroy(): void
}

interface NodeRedisModule {
  readonly createClient: (options: object) => NodeRedisConnection
  readonly createSentinel: (options: object) => NodeRedisConnection
  readonly createCluster: (options: object) => NodeRedisConnection
}

function nodeRedisOptions({ user, password, tls }: Omit<ServerAccess, 'database'>, host: object = {}): object {
  return {
    socket: { ...host, ...(tls === undefined ? {} : { tls: true, ...tls }) },
    ...given({ username: user, password }),
  }
}

/** The package `redis`. */
export function nodeRedisDriver(module: unknown): RedisDriver {
  const { createClient, createSentinel, createCluster } = module as NodeRedisModule
  return {
    server: (host, access) => opening(createClient({ ...nodeRedisOptions(access, host), database: access.database })),
    sentinel: ({ sentinels, name, login }, access) =>
      opening(
        createSentinel({
          name,
          sentinelRootNodes: sentinels,
          nodeClientOptions: { ...nodeRedisOptions(access), database: access.database },
          sentinelClientOptions: nodeRedisOptions({ ...login, tls: access.tls }),
          passthroughClientErrorEvents: true,
        }),
      ),
    cluster: (hosts, access) =>
      opening(
        createCluster({
          rootNodes: hosts.map((host) => nodeRedisOptions(access, host)),
          defaults: nodeRedisOptions(access),
        }),
      ),
  }
}

function opening(client: NodeRedisConnection): OpenClient {
  const ready = new Promise((resolve, reject) => {
    client.on('error', reject)
    client.connect().then(resolve, reject)
  })
  return { client, ready, close: () => client.destroy() }
}

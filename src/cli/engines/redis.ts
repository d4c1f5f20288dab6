import { given } from '../../arguments.ts'
import { sleep, systemClock } from '../../clock.ts'
import { redis, redlock } from '../../engines/redis/index.ts'
import { certificatesOf, parseAddress, type Address, type Host } from './address.ts'
import type { OpenedEngine } from './connect.ts'
import { loadDriver } from './driver.ts'
import { EXIT, Failure, usage } from '../exit-codes.ts'
import { redacted } from '../settings.ts'

interface Client {
  readonly client: unknown
  /** Resolves when it is connected; rejects when the first attempt has failed. */
  readonly ready: Promise<unknown>
  readonly close: () => void
}

/** Connecting, with TLS and from afar, may take longer than a command may. A server that is silent is left to the engine. */
const CONNECT_MS = 5000

type Connect = (host: Host) => Client

/** `redis://a,b,c` is a quorum of independent masters, `redis://a` one server. */
export async function connectRedis(url: string): Promise<OpenedEngine> {
  const address = parseAddress(url, 6379)
  const { hosts, parameters } = address
  if (hosts.length === 2) throw usage(`--engine: expected one Redis or three and more, got two in ${redacted(url)}`)
  const twice = hosts.find(
    ({ host, port }, index) => hosts.findIndex((one) => one.host === host && one.port === port) < index,
  )
  if (twice !== undefined)
    throw usage(
      `--engine: expected each server once, got ${twice.host}:${twice.port} twice in ${redacted(url)}`,
      'a quorum needs independent servers: one that is counted twice may decide alone',
    )
  const common = ['prefix', 'requestTimeout', 'drift', 'fenceTtl']
  const single = hosts.length === 1
  const options = parameters.take([...common, ...(single ? ['replicas', 'within'] : ['maxTtl', 'restart'])])
  const tls = certificatesOf(address)
  parameters.done()
  const open = await opener(address, tls)
  const clients = hosts.map(open)
  const close = (): void => {
    for (const client of clients) client.close()
  }
  const connecting = connected(clients.map(({ ready }) => ready))
  try {
    // Before they are connected: the engine remembers why a client is not.
    const engine = single
      ? redis(clients[0]!.client, options)
      : redlock(
          clients.map(({ client }) => client),
          options,
        )
    await connecting
    return { engine, close }
  } catch (error) {
    close()
    throw error
  }
}

/** One server, for what is not a lease. */
export async function openRedis(
  url: string,
  names: readonly string[],
): Promise<{ client: unknown; options: Record<string, string | number>; close: () => void }> {
  const address = parseAddress(url, 6379)
  const { hosts, parameters } = address
  if (hosts.length > 1) {
    throw usage(
      `--engine: expected one Redis, got ${hosts.length} in ${redacted(url)}`,
      'a quorum holds leases and nothing else',
    )
  }
  const options = parameters.take(names)
  const tls = certificatesOf(address)
  parameters.done()
  const { client, ready, close } = (await opener(address, tls))(hosts[0]!)
  try {
    await connected([ready])
    return { client, options, close }
  } catch (error) {
    close()
    throw error
  }
}

/** Until a majority is connected, or all have settled. */
async function connected(all: readonly Promise<unknown>[]): Promise<void> {
  const over = new AbortController()
  const majority = new Promise<void>((resolve, reject) => {
    let ready = 0
    const count = (): void => {
      if (++ready > all.length / 2) resolve()
    }
    // Why one is not connected, the engine says when it asks; that it lacks the database, nobody would.
    const failed = (error: unknown): void => {
      if (error instanceof Failure) reject(error)
    }
    for (const one of all) one.then(count, failed)
  })
  try {
    await Promise.race([majority, Promise.allSettled(all), sleep(systemClock, CONNECT_MS, over.signal)])
  } finally {
    over.abort()
  }
}

async function opener(address: Address, tls: Record<string, Buffer> | undefined): Promise<Connect> {
  const valkey = address.scheme.startsWith('valkey')
  const names = valkey ? ['iovalkey', 'ioredis', 'redis'] : ['ioredis', 'redis', 'iovalkey']
  const { name, module } = await loadDriver(names, valkey ? 'Valkey' : 'Redis')
  const { user, password, path } = address
  const database = path === '' ? 0 : Number(path)
  if (!/^\d*$/.test(path)) throw usage(`--engine: expected the number of a database, got '/${path}'`)
  if (name === 'redis') return nodeRedis(module, { user, password, database, tls })
  const Redis = (module['Redis'] ?? module['default']) as IoredisConstructor
  return ({ host, port }) => {
    const client = new Redis({
      host,
      port,
      db: database,
      ...given({ username: user, password, tls }),
      // A refused connection is reported at once; whether to try again is the core's decision.
      maxRetriesPerRequest: 0,
      // It would warn on our stderr where the user may not ask for INFO; a server that still loads says so itself.
      enableReadyCheck: false,
    })
    const ready = new Promise((resolve, reject) => {
      const failed = (error: Error): void => {
        if (database === 0 || !NO_DATABASE.test(error.message)) return reject(error)
        client.disconnect()
        reject(withoutDatabase(database, `${host}:${port}`, error))
      }
      client.on('error', failed)
      // The driver goes on in database 0 when its own SELECT is refused, also when it connects anew.
      client.on(
        'ready',
        () => void (database === 0 ? Promise.resolve() : client.select(database)).then(resolve, failed),
      )
    })
    return { client, ready, close: () => client.disconnect() }
  }
}

/** What a SELECT is refused with: no such database, no right to it, or a node of a cluster, which has one alone. */
const NO_DATABASE = /DB index|'select' command|SELECT is not allowed/

function withoutDatabase(database: number, at: string, error: Error): Failure {
  return new Failure(
    EXIT.engine,
    `the database ${database} of ${at} can't be used: ${error.message}`,
    'name a database in the URL that this server has and this user may select; without one it is 0',
    error,
  )
}

type IoredisConstructor = new (options: object) => {
  on(event: string, listener: (error: Error) => void): unknown
  select(database: number): Promise<unknown>
  disconnect(): void
}

interface NodeRedisModule {
  readonly createClient: (options: object) => {
    on(event: 'error', listener: (error: Error) => void): unknown
    connect(): Promise<unknown>
    destroy(): void
  }
}

interface Login {
  readonly user: string | undefined
  readonly password: string | undefined
  readonly database: number
  readonly tls: Record<string, Buffer> | undefined
}

function nodeRedis(module: unknown, { user, password, database, tls }: Login): Connect {
  const { createClient } = module as NodeRedisModule
  return ({ host, port }) => {
    const client = createClient({
      database,
      socket: { host, port, ...(tls === undefined ? {} : { tls: true, ...tls }) },
      ...given({ username: user, password }),
    })
    const ready = new Promise((resolve, reject) => {
      client.on('error', reject)
      client.connect().then(resolve, reject)
    })
    return { client, ready, close: () => client.destroy() }
  }
}

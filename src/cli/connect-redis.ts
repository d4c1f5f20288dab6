import { sleep, systemClock } from '../clock.ts'
import { redis, redlock } from '../engines/redis/index.ts'
import { certificatesOf, parseAddress, type Address, type Host } from './address.ts'
import type { Connection } from './connect.ts'
import { loadDriver } from './driver.ts'
import { usage } from './exit-codes.ts'
import { redacted } from './settings.ts'

interface Client {
  readonly client: unknown
  /** Resolves when it is connected; rejects when the first attempt has failed. */
  readonly ready: Promise<unknown>
  close(): void
}

/** Connecting, with TLS and from afar, may take longer than a command may. A server that is silent is left to the engine. */
const CONNECT_MS = 5000

type Connect = (host: Host, failed: (error: Error) => void) => Client

/** `redis://a,b,c` is a quorum of independent masters, `redis://a` one server. */
export async function connectRedis(url: string): Promise<Connection> {
  const address = parseAddress(url, 6379)
  const { hosts, parameters } = address
  if (hosts.length === 2) throw usage(`--engine: expected one Redis or three and more, got two in ${redacted(url)}`)
  const common = { prefix: 'text', nodeTimeout: 'text', drift: 'number', fenceTtl: 'text' } as const
  const single = hosts.length === 1
  const options = parameters.take(
    single ? { ...common, replicas: 'number', within: 'text' } : { ...common, maxTtl: 'text', restart: 'text' },
  )
  const tls = certificatesOf(address)
  parameters.done()
  const open = await opener(address, tls)
  let trouble: string | undefined
  const clients = hosts.map((host) => open(host, (error) => (trouble = `${host.host}:${host.port}: ${error.message}`)))
  const close = (): void => {
    for (const client of clients) client.close()
  }
  await connected(clients.map(({ ready }) => ready))
  try {
    const engine = single
      ? redis(clients[0]!.client, options)
      : redlock(
          clients.map(({ client }) => client),
          options,
        )
    return { engine, url: redacted(url), trouble: () => trouble, close }
  } catch (error) {
    close()
    throw error
  }
}

/** Until a majority is connected, or all have settled. */
async function connected(all: readonly Promise<unknown>[]): Promise<void> {
  const over = new AbortController()
  const majority = new Promise<void>((resolve) => {
    let ready = 0
    const count = (): void => {
      if (++ready > all.length / 2) resolve()
    }
    // A failure is told by the engine, when it asks in vain.
    for (const one of all) one.then(count, () => undefined)
  })
  await Promise.race([majority, Promise.allSettled(all), sleep(systemClock, CONNECT_MS, over.signal)])
  over.abort()
}

async function opener(address: Address, tls: Record<string, Buffer> | undefined): Promise<Connect> {
  const valkey = address.scheme.startsWith('valkey')
  const names = valkey ? ['iovalkey', 'ioredis', 'redis'] : ['ioredis', 'redis', 'iovalkey']
  const { name, module } = await loadDriver(names, valkey ? 'Valkey' : 'Redis')
  const { user, password, path } = address
  const database = path === '' ? 0 : Number(path)
  if (!Number.isInteger(database)) throw usage(`--engine: expected the number of a database, got '/${path}'`)
  if (name === 'redis') return nodeRedis(module, { user, password, database, tls })
  const Redis = (module['Redis'] ?? module['default']) as IoredisConstructor
  return ({ host, port }, failed) => {
    const client = new Redis({
      host,
      port,
      db: database,
      ...(user === undefined ? {} : { username: user }),
      ...(password === undefined ? {} : { password }),
      ...(tls === undefined ? {} : { tls }),
      // A refused connection is told at once; whether to try again is the core's business.
      maxRetriesPerRequest: 0,
    })
    client.on('error', failed)
    const ready = new Promise((resolve, reject) => void client.once('ready', resolve).once('error', reject))
    return { client, ready, close: () => client.disconnect() }
  }
}

type IoredisConstructor = new (options: object) => {
  on(event: 'error', listener: (error: Error) => void): unknown
  once(
    event: string,
    listener: (error: Error) => void,
  ): { once(event: string, listener: (error: Error) => void): unknown }
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
  return ({ host, port }, failed) => {
    const client = createClient({
      database,
      socket: { host, port, ...(tls === undefined ? {} : { tls: true, ...tls }) },
      ...(user === undefined ? {} : { username: user }),
      ...(password === undefined ? {} : { password }),
    })
    client.on('error', failed)
    const ready = new Promise((resolve, reject) => {
      client.on('error', reject)
      client.connect().then(resolve, reject)
    })
    return { client, ready, close: () => client.destroy() }
  }
}

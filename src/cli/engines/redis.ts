import { sleep, systemClock, type Clock } from '../../clock.ts'
import { redis, redlock } from '../../engines/redis/index.ts'
import { certificatesOf, parseAddress, type Address, type Expected } from './address.ts'
import type { OpenedEngine } from './connect.ts'
import { Failure, usage } from '../exit-codes.ts'
import { redisDriver, type OpenClient } from './redis-drivers.ts'
import { redacted } from '../settings.ts'

/** Connecting, with TLS and from afar, may take longer than a command may. A server that is silent is left to the engine. */
const CONNECT_MS = 5000

/** How much longer than the first of several the others may take. A request waits for a connection, too. */
const AFTER_FIRST_MS = 1000

/** What the hosts of a URL are, by the end of its scheme. */
const KINDS = {
  servers: { port: 6379, example: 'redis://host:6379', logins: 'each' },
  sentinel: { port: 26379, example: 'redis+sentinel://host:26379,host:26379/MASTER' },
  cluster: { port: 6379, example: 'redis+cluster://host:6379,host:6379' },
} as const satisfies Record<string, Expected>

type Kind = keyof typeof KINDS

function kindOf(url: string): Kind {
  const [, kind = 'servers'] = /^[a-z]+\+(sentinel|cluster):/i.exec(url) ?? []
  return kind.toLowerCase() as Kind
}

/**
 * `redis://a,b,c` is a quorum of independent masters, `redis://a` one server; `redis+sentinel://a,b,c/name` is the master that
 * sentinels name, `redis+cluster://a,b,c` a Cluster.
 */
export async function connectRedis(url: string): Promise<OpenedEngine> {
  const address = parseAddress(url, KINDS[kindOf(url)])
  const { hosts } = address
  const isQuorum = kindOf(url) === 'servers' && hosts.length > 1
  if (isQuorum) assertQuorum(address, url)
  const names = isQuorum ? ['maxTtl', 'restart'] : ['replicas', 'within']
  const { clients, options, close } = await open(url, address, [
    'prefix',
    'requestTimeout',
    'drift',
    'fenceTtl',
    ...names,
  ])
  const connecting = connected(clients.map(({ ready }) => ready))
  try {
    // Before they are connected: the engine remembers why a client is not.
    const engine = isQuorum
      ? redlock(
          clients.map(({ client }) => client),
          options,
        )
      : redis(clients[0]!.client, options)
    await connecting
    return { engine, close }
  } catch (error) {
    close()
    throw error
  }
}

function assertQuorum({ hosts }: Address, url: string): void {
  if (hosts.length === 2) throw usage(`--engine: expected one Redis or three and more, got two in ${redacted(url)}`)
  const twice = hosts.find(
    ({ host, port }, index) => hosts.findIndex((one) => one.host === host && one.port === port) < index,
  )
  if (twice === undefined) return
  throw usage(
    `--engine: expected each server once, got ${twice.host}:${twice.port} twice in ${redacted(url)}`,
    'a quorum needs independent servers: one that is counted twice may decide alone',
  )
}

/** One server, the master behind sentinels or a Cluster, for what is not a lease. */
export async function openRedis(
  url: string,
  names: readonly string[],
): Promise<{ client: unknown; options: Record<string, string | number>; close: () => void }> {
  const address = parseAddress(url, KINDS[kindOf(url)])
  if (kindOf(url) === 'servers' && address.hosts.length > 1) {
    throw usage(
      `--engine: expected one Redis, got ${address.hosts.length} in ${redacted(url)}`,
      'a quorum holds leases and nothing else',
    )
  }
  const { clients, options, close } = await open(url, address, names)
  const [{ client, ready }] = clients as [OpenClient]
  try {
    await connected([ready])
    return { client, options, close }
  } catch (error) {
    close()
    throw error
  }
}

interface OpenRedis {
  /** One for each node of a quorum, otherwise one. */
  readonly clients: readonly OpenClient[]
  readonly options: Record<string, string | number>
  readonly close: () => void
}

async function open(url: string, address: Address, names: readonly string[]): Promise<OpenRedis> {
  const { hosts, logins, user, password, parameters } = address
  const kind = kindOf(url)
  const options = parameters.take(names)
  const sentinel = kind === 'sentinel' ? parameters.take(['sentinelUsername', 'sentinelPassword']) : {}
  const tls = certificatesOf(address)
  parameters.done()
  const { name, database } = pathOf(kind, address, url)
  const driver = await redisDriver(address.scheme)
  const access = { user, password, database, tls }
  const openers: Record<Kind, () => readonly OpenClient[]> = {
    servers: () => hosts.map((host, index) => driver.server(host, { ...access, ...logins[index] })),
    sentinel: () => {
      const login = { user: text(sentinel['sentinelUsername']), password: text(sentinel['sentinelPassword']) }
      return [driver.sentinel({ sentinels: hosts, name, login }, access)]
    },
    cluster: () => [driver.cluster(hosts, access)],
  }
  const clients = openers[kind]()
  const close = (): void => {
    for (const client of clients) client.close()
  }
  return { clients, options, close }
}

function text(value: string | number | undefined): string | undefined {
  return value === undefined ? undefined : String(value)
}

/** The number of a database; behind sentinels the name of a master before it. */
function pathOf(kind: Kind, { path }: Address, url: string): { name: string; database: number } {
  const [, name = '', number] = (kind === 'sentinel' ? /^([^/]*)(?:\/(.*))?$/s : /^()(.*)$/s).exec(path) ?? []
  if (kind === 'sentinel' && name === '') {
    throw usage(
      `--engine: expected the name of the master after the sentinels, got ${redacted(url)}`,
      `${KINDS.sentinel.example}; SENTINEL MASTERS on one of them lists the names`,
    )
  }
  if (!/^\d*$/.test(number ?? '')) throw usage(`--engine: expected the number of a database, got '/${number}'`)
  const database = Number(number ?? 0)
  if (kind === 'cluster' && database !== 0)
    throw usage(`--engine: expected no database, got '/${path}': a Cluster has the database 0 alone`)
  return { name, database }
}

/** Until a majority is connected, or all have settled, or there is no use in waiting longer. */
export async function connected(all: readonly Promise<unknown>[], clock: Clock = systemClock): Promise<void> {
  const over = new AbortController()
  const majority = new Promise<void>((resolve, reject) => {
    let ready = 0
    const count = (): void => {
      if (++ready > all.length / 2) resolve()
      else if (ready === 1) void sleep(clock, AFTER_FIRST_MS, over.signal).then(resolve)
    }
    // Why one is not connected, the engine says when it asks; that it lacks the database, nobody would.
    const failed = (error: unknown): void => {
      if (error instanceof Failure) reject(error)
    }
    for (const one of all) one.then(count, failed)
  })
  try {
    await Promise.race([majority, Promise.allSettled(all), sleep(clock, CONNECT_MS, over.signal)])
  } finally {
    over.abort()
  }
}

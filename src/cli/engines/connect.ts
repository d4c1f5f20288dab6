import type { Engine } from '../../index.ts'
import { assertWellFormed } from './address.ts'
import { Failure, usage } from '../exit-codes.ts'
import { redacted, type Setting } from '../settings.ts'

/** An engine with the clients that we opened for it. */
export interface Connection {
  readonly engine: Engine
  /** As it may be shown. */
  readonly url: string
  /** After the engine was closed. */
  readonly close: () => void | Promise<unknown>
}

/** Default: the URL that was given, without its secrets, and nothing to close. */
export type OpenedEngine = Pick<Connection, 'engine'> & Partial<Connection>

type Connector = (url: string) => Promise<OpenedEngine>

const redis = async (): Promise<Connector> => (await import('./redis.ts')).connectRedis
const postgres = async (): Promise<Connector> => (await import('./sql.ts')).connectPostgres
const mariadb = async (): Promise<Connector> => (await import('./sql.ts')).connectMariadb
const mongodb = async (): Promise<Connector> => (await import('./mongodb.ts')).connectMongodb
const etcd = async (): Promise<Connector> => (await import('./http.ts')).connectEtcd
const consul = async (): Promise<Connector> => (await import('./http.ts')).connectConsul

/** Servers, sentinels and Clusters of both kinds, without TLS and with it. */
export const REDIS_SCHEMES = ['', '+sentinel', '+cluster'].flatMap((kind) =>
  ['redis', 'rediss', 'valkey', 'valkeys'].map((name) => `${name}${kind}`),
)

/** By scheme. Each engine and each driver is loaded when its URL is used, and not before. */
const CONNECTORS: Readonly<Record<string, () => Promise<Connector>>> = {
  file: async () => (await import('./file.ts')).connectFile,
  ...Object.fromEntries(REDIS_SCHEMES.map((scheme) => [scheme, redis])),
  postgres,
  postgresql: postgres,
  mariadb,
  mysql: mariadb,
  mongodb,
  'mongodb+srv': mongodb,
  etcd,
  etcds: etcd,
  consul,
  consuls: consul,
  zookeeper: async () => (await import('./zookeeper.ts')).connectZookeeper,
}

/** Without a URL: the embedded engine. */
export async function connect(url: Setting | undefined): Promise<Connection> {
  if (url === undefined) return (await import('./file.ts')).connectFile()
  try {
    return await connectTo(url.text)
  } catch (error) {
    throw saidOf(url.source, error)
  }
}

/** What is wrong with a URL, said of where the URL came from. */
export function saidOf(source: string, error: unknown): unknown {
  // An engine names its option, such as requestTimeout; which of the settings has it, only we know.
  if (error instanceof RangeError || error instanceof TypeError) return usage(`${source}: ${error.message}`)
  if (!(error instanceof Failure) || !error.message.startsWith(`${URL_OPTION}: `)) return error
  return usage(`${source}${error.message.slice(URL_OPTION.length)}`, error.next)
}

/** What all connectors call the source of their URL. */
const URL_OPTION = '--engine'

/** What other tools write, and what is written here. */
const OTHER_FORMS: readonly (readonly [said: RegExp, form: string])[] = [
  [/sentinel/, 'write redis+sentinel://HOST:26379,HOST:26379/MASTER, or rediss+sentinel:// with TLS'],
  [/cluster/, 'write redis+cluster://HOST:6379,HOST:6379, or rediss+cluster:// with TLS'],
  [/^(redis|valkey)[+-](tls|ssl)$/, 'write rediss:// or valkeys:// for TLS'],
  [/^(pgsql|pg|postgis)$/, 'write postgres://'],
]

/** What a scheme stands for, of a URL that is one. */
export function ofScheme<T>(
  url: string,
  by: Readonly<Record<string, T>>,
  next = 'ringfence --help shows one of each',
): T {
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase() ?? ''
  const found = Object.hasOwn(by, scheme) ? by[scheme] : undefined
  if (found === undefined) {
    const known = Object.keys(by).join(', ')
    const form = OTHER_FORMS.find(([said]) => said.test(scheme))?.[1]
    throw usage(`--engine: expected a URL with one of ${known}, got ${redacted(url)}`, form ?? next)
  }
  assertWellFormed(url)
  return found
}

async function connectTo(url: string): Promise<Connection> {
  const load = ofScheme(url, CONNECTORS)
  const connector = await load()
  return { url: redacted(url), close: () => undefined, ...(await connector(url)) }
}

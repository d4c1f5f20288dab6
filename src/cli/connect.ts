import type { Engine } from '../index.ts'
import { usage } from './exit-codes.ts'
import { redacted } from './settings.ts'

/** An engine with the clients that we opened for it. */
export interface Connection {
  readonly engine: Engine
  /** As it may be shown. */
  readonly url: string
  /** What a client of ours last complained about, for an error that does not say. */
  readonly trouble: () => string | undefined
  /** After the engine was closed. */
  readonly close: () => void | Promise<void>
}

type Connector = (url: string) => Promise<Connection>

const redis = async (): Promise<Connector> => (await import('./connect-redis.ts')).connectRedis
const postgres = async (): Promise<Connector> => (await import('./connect-sql.ts')).connectPostgres
const mariadb = async (): Promise<Connector> => (await import('./connect-sql.ts')).connectMariadb
const mongodb = async (): Promise<Connector> => (await import('./connect-mongodb.ts')).connectMongodb
const etcd = async (): Promise<Connector> => (await import('./connect-http.ts')).connectEtcd
const consul = async (): Promise<Connector> => (await import('./connect-http.ts')).connectConsul

/** By scheme. Each engine and each driver is loaded when its URL is used, and not before. */
const CONNECTORS: Readonly<Record<string, () => Promise<Connector>>> = {
  file: async () => (await import('./connect-file.ts')).connectFile,
  redis,
  rediss: redis,
  valkey: redis,
  valkeys: redis,
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
  zookeeper: async () => (await import('./connect-zookeeper.ts')).connectZookeeper,
}

/** Without a URL: the embedded engine. */
export async function connect(url: string | undefined): Promise<Connection> {
  if (url === undefined) return (await import('./connect-file.ts')).connectFile()
  const scheme = /^([a-z][a-z0-9+]*):/i.exec(url)?.[1]?.toLowerCase() ?? ''
  const load = CONNECTORS[scheme]
  if (load === undefined) {
    const known = Object.keys(CONNECTORS).join(', ')
    throw usage(
      `--engine: expected a URL with one of ${known}, got ${redacted(url)}`,
      'ringfence --help shows one of each',
    )
  }
  return (await load())(url)
}

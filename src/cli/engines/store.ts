import type { RunStore } from '../../index.ts'
import { mariadbGuard } from '../../guards/mariadb.ts'
import { mongodbGuard } from '../../guards/mongodb.ts'
import { postgresGuard } from '../../guards/postgres.ts'
import { redisGuard } from '../../guards/redis.ts'
import { ofScheme, REDIS_SCHEMES, saidOf } from './connect.ts'
import { EXIT, Failure } from '../exit-codes.ts'
import { reasonOf } from '../session.ts'
import { redacted, type Setting } from '../settings.ts'

/** Where runs are recorded, with the client that we opened for it. */
export interface Store {
  readonly runs: RunStore
  /** As it may be shown. */
  readonly url: string
  readonly close: () => void | Promise<unknown>
}

type Opener = (url: string) => Promise<Pick<Store, 'runs' | 'close'>>

/** A command waits for it when its work is done. */
const PATIENCE = { requestTimeout: '5s' } as const

async function openPostgres(url: string): ReturnType<Opener> {
  const { pool, options } = await (await import('./sql.ts')).openPostgres(url, ['table', 'requestTimeout'])
  return { runs: postgresGuard(pool as never, { ...PATIENCE, ...options }), close: () => pool.end() }
}

async function openMariadb(url: string): ReturnType<Opener> {
  const { pool, options } = await (await import('./sql.ts')).openMariadb(url, ['table', 'requestTimeout'])
  return { runs: mariadbGuard(pool as never, { ...PATIENCE, ...options }), close: () => pool.end() }
}

async function openMongodb(url: string): ReturnType<Opener> {
  const { client, options } = await (await import('./mongodb.ts')).openMongodb(url, ['collection', 'requestTimeout'])
  return { runs: mongodbGuard(client.db() as never, { ...PATIENCE, ...options }), close: () => client.close() }
}

async function openRedis(url: string): ReturnType<Opener> {
  const { client, options, close } = await (await import('./redis.ts')).openRedis(url, ['prefix', 'requestTimeout'])
  return { runs: redisGuard(client, { ...PATIENCE, ...options }), close }
}

const OPENERS: Readonly<Record<string, Opener>> = {
  postgres: openPostgres,
  postgresql: openPostgres,
  mariadb: openMariadb,
  mysql: openMariadb,
  mongodb: openMongodb,
  'mongodb+srv': openMongodb,
  ...Object.fromEntries(REDIS_SCHEMES.map((scheme) => [scheme, openRedis])),
}

/** Not every engine can keep a history. */
const EXAMPLE = 'a store is a database or a Redis server, such as postgres://app@db/app; docs/cli.md has one of each'

export async function openStore({ text, source }: Setting): Promise<Store> {
  try {
    return { ...(await ofScheme(text, OPENERS, EXAMPLE)(text)), url: redacted(text) }
  } catch (error) {
    throw saidOf(source, error)
  }
}

/** What went wrong with the store, for the one who asked it. */
export function storeFailure(error: unknown, { url }: Store): unknown {
  if (error instanceof Failure || error instanceof RangeError || error instanceof TypeError) return error
  const reason = reasonOf(error instanceof Error ? error : new Error(String(error)))
  const next = 'is the server up, the URL right, and may this user read and write its tables?'
  return new Failure(EXIT.engine, `the store ${url} can't be used: ${reason}`, next, error)
}

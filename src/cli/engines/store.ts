import type { RunStore } from '../../index.ts'
import { mariadbGuard } from '../../guards/mariadb.ts'
import { mongodbGuard } from '../../guards/mongodb.ts'
import { postgresGuard } from '../../guards/postgres.ts'
import { redisGuard } from '../../guards/redis.ts'
import type { SqlGuard } from '../../guards/sql.ts'
import { ofScheme, REDIS_SCHEMES, saidOf } from './connect.ts'
import { EXIT, Failure } from '../exit-codes.ts'
import { reasonOf } from '../session.ts'
import { redacted, type Setting } from '../settings.ts'

/** Where runs are recorded, with the client that we opened for it. */
export interface Store {
  readonly runs: RunStore
  /** Creates what has to be there before the first run, and says it. Undefined where nothing has to be. */
  readonly init?: () => Promise<readonly string[]>
  /** As it may be shown. */
  readonly url: string
  readonly close: () => void | Promise<unknown>
}

type Opener = (url: string) => Promise<Pick<Store, 'runs' | 'init' | 'close'>>

/** A command waits for it when its work is done. */
const PATIENCE = { requestTimeout: '5s' } as const

function ofSql(guard: SqlGuard, close: Store['close']): Awaited<ReturnType<Opener>> {
  const init = async (): Promise<readonly string[]> => {
    await guard.init()
    return [guard.schema, guard.onceSchema, guard.runsSchema].map((schema) => `created unless it was there:\n${schema}`)
  }
  return { runs: guard, init, close }
}

async function openPostgres(url: string): ReturnType<Opener> {
  const { pool, options } = await (await import('./sql.ts')).openPostgres(url, ['table', 'requestTimeout'])
  return ofSql(postgresGuard(pool as never, { ...PATIENCE, ...options }), () => pool.end())
}

async function openMariadb(url: string): ReturnType<Opener> {
  const { pool, options } = await (await import('./sql.ts')).openMariadb(url, ['table', 'requestTimeout'])
  return ofSql(mariadbGuard(pool as never, { ...PATIENCE, ...options }), () => pool.end())
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
  const next = DENIED.test(reason) ? rightsOf(url) : 'is the server up, and the URL right?'
  const said = reason.startsWith('the run is recorded') ? reason : `the store ${url} cannot be used: ${reason}`
  return new Failure(EXIT.engine, said, next, error)
}

const DENIED = /\bNOPERM\b|permission denied|(command|access) denied to user|not authorized|can't run this command/i

/** What the user of a store has to be allowed. */
function rightsOf(url: string): string {
  if (url.startsWith('redis')) {
    return 'give this user +evalsha +eval +time +hexists +hset +hget +hdel +zadd +zrange +zrevrange +zrem on the keys of the store'
  }
  if (url.startsWith('mongodb')) {
    return 'give this user find, insert, update, remove and createIndex on the collection of the runs'
  }
  return 'give this user SELECT, INSERT, UPDATE and DELETE on the table of the runs; `ringfence init --store URL` makes it, as a user that may create tables'
}

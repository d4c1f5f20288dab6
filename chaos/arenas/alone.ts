import { isAvailable } from '../../harness/binaries.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { file } from '../../src/engines/file/index.ts'
import { keysOn } from './redlock.ts'
import { clockOf, driverOf, portsOf, startTarget, stopTargets, type Arena } from '../arena.ts'
import { OFFER_MS, PLACE_MS } from '../../src/engines/redis/line-lua.ts'

const TTL_MS = 1500
const JUMP_MS = 3000

export const postgresArena = (): Promise<Arena> => postgresOrAdvisory('postgres', ['pg', 'postgres.js'])
/** Leases that end with a connection as well: a client that is killed makes way at once. */
export const advisoryArena = (): Promise<Arena> => postgresOrAdvisory('postgres-advisory', ['pg'])

async function postgresOrAdvisory(
  connector: 'postgres' | 'postgres-advisory',
  drivers: readonly string[],
): Promise<Arena> {
  const clockShift = isAvailable('clock-shift')
  const server = await startPostgres({ clockShift, settings: { max_connections: '200' } })
  const clock = { shift: (ms: number) => server.shiftClock(ms), jumpMs: JUMP_MS }
  const targets = [await startTarget('postgres', server, clockShift ? { clock } : {})]
  return {
    connector,
    targets,
    majority: 1,
    ttlMs: TTL_MS,
    // A lease that was granted while the clock was ahead lasts longer by that.
    settleMs: TTL_MS + JUMP_MS + 1000,
    mostGapMs: 15_000,
    clearMs: TTL_MS + JUMP_MS + 1000,
    env: (client) => ({
      RINGFENCE_URL: `postgres://postgres@127.0.0.1:${portsOf(targets, client)[0]}/postgres`,
      RINGFENCE_DRIVER: driverOf(client, drivers),
    }),
    leftovers: async () => {
      const rows = await server.sql(
        'SELECT resource FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > now()',
      )
      return rows.split('\n').filter((row) => row !== '')
    },
    [Symbol.asyncDispose]: () => stopTargets(targets),
  }
}

export const mariadbArena = (): Promise<Arena> => mariadbOrMysql('mariadb')
export const mysqlArena = (): Promise<Arena> => mariadbOrMysql('mysql')

async function mariadbOrMysql(name: 'mariadb' | 'mysql'): Promise<Arena> {
  const server = await startMariadb({ mysql: name === 'mysql', settings: { 'max-connections': '200' } })
  const targets = [await startTarget(name, server, clockOf(server, { jumpMs: JUMP_MS }))]
  return {
    connector: 'mariadb',
    targets,
    majority: 1,
    ttlMs: TTL_MS,
    settleMs: TTL_MS + JUMP_MS + 1000,
    mostGapMs: 15_000,
    clearMs: TTL_MS + JUMP_MS + 1000,
    env: (client) => ({
      RINGFENCE_PORT: String(portsOf(targets, client)[0]),
      RINGFENCE_DRIVER: driverOf(client, ['mariadb', 'mysql2']),
    }),
    leftovers: async () => {
      const rows = await server.sql(
        'SELECT resource FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)',
      )
      return rows.split('\n').filter((row) => row !== '')
    },
    [Symbol.asyncDispose]: () => stopTargets(targets),
  }
}

export const redisArena = (): Promise<Arena> => redisOrValkey('redis')
export const valkeyArena = (): Promise<Arena> => redisOrValkey('valkey')

/** One server that keeps every write: what one Redis promises, it promises with that. */
async function redisOrValkey(name: 'redis' | 'valkey'): Promise<Arena> {
  const clockShift = isAvailable('clock-shift')
  const server = await startRedis({ durable: true, valkey: name === 'valkey', clockShift })
  const clock = { shift: (ms: number) => server.shiftClock(ms), jumpMs: JUMP_MS }
  const targets = [await startTarget(name, server, clockShift ? { clock } : {})]
  return {
    connector: 'redis',
    targets,
    majority: 1,
    ttlMs: TTL_MS,
    settleMs: TTL_MS + JUMP_MS + 1000,
    mostGapMs: 15_000,
    // A dead waiter keeps its place in line for a while, and may be offered the lock in that time.
    clearMs: TTL_MS + JUMP_MS + PLACE_MS + OFFER_MS,
    env: (client) => ({
      RINGFENCE_PORT: String(portsOf(targets, client)[0]),
      RINGFENCE_DRIVER: driverOf(client, ['node-redis', 'ioredis', 'iovalkey', 'glide']),
    }),
    leftovers: () => keysOn(name, server),
    [Symbol.asyncDispose]: () => stopTargets(targets),
  }
}

/** Without a server, only the clients can fail. */
export async function fileArena(): Promise<Arena> {
  const folder = createFolder('chaos')
  const path = `${folder}/locks.db`
  return {
    connector: 'file',
    targets: [],
    majority: 0,
    ttlMs: TTL_MS,
    settleMs: TTL_MS,
    mostGapMs: 15_000,
    clearMs: TTL_MS,
    env: () => ({ RINGFENCE_FILE: path }),
    // By the engine's own look: the row of a dead holder stays in the file and counts for nothing.
    leftovers: async () => {
      const engine = file(path)
      const left: string[] = []
      for await (const { resource, owner } of engine.inspect()) left.push(`${resource} of ${owner}`)
      await engine.close()
      return left
    },
    [Symbol.asyncDispose]: async () => removeFolder(folder),
  }
}

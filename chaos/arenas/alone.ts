import { isAvailable } from '../../harness/binaries.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { file } from '../../src/engines/file/index.ts'
import { keysOn } from './redlock.ts'
import { portsOf, startTarget, stopTargets, type Arena } from '../arena.ts'
import { OFFER_MS, PLACE_MS } from '../../src/engines/redis/line-lua.ts'

const TTL_MS = 1500
const JUMP_MS = 3000

export async function postgresArena(): Promise<Arena> {
  const clockShift = isAvailable('clock-shift')
  const server = await startPostgres({ clockShift, settings: { max_connections: '200' } })
  const clock = { shift: (ms: number) => server.shiftClock(ms), jumpMs: JUMP_MS }
  const targets = [await startTarget('postgres', server, clockShift ? { clock } : {})]
  return {
    connector: 'postgres',
    targets,
    majority: 1,
    ttlMs: TTL_MS,
    // A lease that was granted while the clock was ahead lasts longer by that.
    settleMs: TTL_MS + JUMP_MS + 1000,
    mostGapMs: 15_000,
    clearMs: TTL_MS + JUMP_MS + 1000,
    env: (client) => ({ RINGFENCE_URL: `postgres://postgres@127.0.0.1:${portsOf(targets, client)[0]}/postgres` }),
    leftovers: async () => {
      const rows = await server.sql(
        'SELECT resource FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > now()',
      )
      return rows.split('\n').filter((row) => row !== '')
    },
    [Symbol.asyncDispose]: () => stopTargets(targets),
  }
}

export async function mariadbArena(): Promise<Arena> {
  const server = await startMariadb({ settings: { 'max-connections': '200' } })
  const targets = [await startTarget('mariadb', server)]
  return {
    connector: 'mariadb',
    targets,
    majority: 1,
    ttlMs: TTL_MS,
    settleMs: TTL_MS + 1000,
    mostGapMs: 15_000,
    clearMs: TTL_MS + 1000,
    env: (client) => ({ RINGFENCE_PORT: String(portsOf(targets, client)[0]) }),
    leftovers: async () => {
      const rows = await server.sql(
        'SELECT resource FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)',
      )
      return rows.split('\n').filter((row) => row !== '')
    },
    [Symbol.asyncDispose]: () => stopTargets(targets),
  }
}

/** One server that keeps every write: what one Redis promises, it promises with that. */
export async function redisArena(): Promise<Arena> {
  const server = await startRedis({ durable: true })
  const targets = [await startTarget('redis', server)]
  return {
    connector: 'redis',
    targets,
    majority: 1,
    ttlMs: TTL_MS,
    settleMs: TTL_MS + 1000,
    mostGapMs: 15_000,
    // A dead waiter keeps its place in line for a while, and may be offered the lock in that time.
    clearMs: TTL_MS + PLACE_MS + OFFER_MS,
    env: (client) => ({
      RINGFENCE_PORT: String(portsOf(targets, client)[0]),
      RINGFENCE_DRIVER: client % 2 === 0 ? 'node-redis' : 'ioredis',
    }),
    leftovers: () => keysOn('redis', server),
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

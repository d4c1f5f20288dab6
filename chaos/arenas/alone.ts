import { hasEngine } from '../../test/support/engines.ts'
import { startPostgres } from '../../test/support/servers/postgres.ts'
import { createFolder, removeFolder } from '../../test/support/temporary-folder.ts'
import { file } from '../../src/engines/file/index.ts'
import { portsOf, startTarget, stopTargets, type Arena } from '../arena.ts'

const TTL_MS = 1500
const JUMP_MS = 3000

export async function postgresArena(): Promise<Arena> {
  const clockShift = hasEngine('clock-shift')
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

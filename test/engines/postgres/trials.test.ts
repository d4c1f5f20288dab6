import { describe } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { postgres, postgresAdvisory } from '../../../src/engines/postgres/index.ts'
import { startPostgres } from '../../support/servers/postgres.ts'
import { faultTrials, processTrials, type BreakableServers } from '../trials.ts'
import { connectedClient, openPool } from './clients.ts'

describe('postgres', () => {
  const start = (): Promise<BreakableServers> => startWith(withPool)
  processTrials({ connector: 'postgres', start, nextWithinMs: 30_000, ttlMs: 4000 })
  faultTrials({ start, survivesRestart: true, ttlMs: 4000 })
})

describe('leases that end with a connection', () => {
  const start = (): Promise<BreakableServers> => startWith((url) => postgresAdvisory(() => connectedClient(url)))
  // The connection ends with its process, so that nobody waits for the ttl.
  processTrials({ connector: 'postgres-advisory', start, nextWithinMs: 3000, ttlMs: 20_000 })
  // Nobody else waits for it here, so that the next session finds its lease as it was.
  faultTrials({ start, survivesRestart: true, ttlMs: 4000 })
})

async function startWith(makeEngine: (url: string) => Engine): Promise<BreakableServers> {
  const server = await startPostgres()
  return {
    env: { RINGFENCE_URL: server.url },
    engine: async () => makeEngine(server.url),
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    kill: () => server.kill(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

function withPool(url: string): Engine {
  const pool = openPool({ connectionString: url })
  const engine = postgres(pool)
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().finally(() => pool.end()) })
}

import { describe } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { postgres, postgresAdvisory } from '../../../src/engines/postgres/index.ts'
import { startPostgres } from '../../../harness/servers/postgres.ts'
import { faultTrials, processTrials, sharedTrials, type BreakableServers } from '../trials.ts'
import { connectedClient, openPool } from './clients.ts'

describe.concurrent('postgres', () => {
  processTrials({ connector: 'postgres', start: withTable, nextWithinMs: 30_000 })
  faultTrials({ start: withTable, survivesRestart: true })
})

describe.concurrent('leases that end with a connection', () => {
  // The connection ends with its process, so that nobody waits for the ttl.
  processTrials({ connector: 'postgres-advisory', start: withSessions, nextWithinMs: 3000, ttlMs: 20_000 })
  // Nobody else waits for it here, so that the next session finds its lease as it was.
  faultTrials({ start: withSessions, survivesRestart: true })
})

// Not beside the others: each has four processes of its own.
describe('postgres, shared', () => {
  sharedTrials({ connector: 'postgres', start: withTable, nextWithinMs: 30_000 })
})

describe('leases that end with a connection, shared', () => {
  sharedTrials({ connector: 'postgres-advisory', start: withSessions, nextWithinMs: 3000, ttlMs: 20_000 })
})

function withTable(): Promise<BreakableServers> {
  return startWith((url) => {
    const pool = openPool({ connectionString: url })
    return alsoEnding(postgres(pool), () => pool.end())
  })
}

function withSessions(): Promise<BreakableServers> {
  return startWith((url) => postgresAdvisory(() => connectedClient(url)))
}

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

function alsoEnding(engine: Engine, end: () => Promise<void>): Engine {
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().then(end, end) })
}

import { createPool } from 'mariadb'
import { describe } from 'vitest'
import { mariadb } from '../../../src/engines/mariadb/index.ts'
import { startMariadb } from '../../../harness/servers/mariadb.ts'
import { faultTrials, processTrials, sharedTrials, type BreakableServers } from '../trials.ts'
import { addressOf } from './clients.ts'

describe.concurrent('mariadb', () => {
  processTrials({ connector: 'mariadb', start, nextWithinMs: 30_000 })
  faultTrials({ start, survivesRestart: true })
})

// Not beside the others: each has four processes of its own.
describe('mariadb, shared', () => {
  sharedTrials({ connector: 'mariadb', start, nextWithinMs: 30_000 })
})

async function start(): Promise<BreakableServers> {
  const server = await startMariadb()
  return {
    env: { RINGFENCE_PORT: String(server.port) },
    async engine() {
      const pool = createPool(addressOf(server))
      const engine = mariadb(pool)
      const close = engine.close.bind(engine)
      return Object.assign(engine, { close: () => close().then(() => pool.end()) })
    },
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    kill: () => server.kill(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

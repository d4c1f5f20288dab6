import { describe } from 'vitest'
import { consul } from '../../../src/engines/consul/index.ts'
import { startConsul } from '../../../harness/servers/consul.ts'
import { faultTrials, processTrials, type BreakableServers } from '../trials.ts'

describe.concurrent('consul', () => {
  // A session ends after up to twice its ttl, and the lock-delay, as long as the ttl, comes on top.
  processTrials({ connector: 'consul', start, nextWithinMs: 40_000, ttlMs: 3000 })
  faultTrials({ start, survivesRestart: true })
})

async function start(): Promise<BreakableServers> {
  const server = await startConsul()
  return {
    env: { RINGFENCE_URLS: server.url },
    engine: async () => consul(server.url, { sessionTtlMin: '1s' }),
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    kill: () => server.kill(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

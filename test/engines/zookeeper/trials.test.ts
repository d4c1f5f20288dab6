import * as driver from 'node-zookeeper-client'
import { describe } from 'vitest'
import { zookeeper } from '../../../src/engines/zookeeper/index.ts'
import { startZookeeper } from '../../../harness/servers/zookeeper.ts'
import { faultTrials, processTrials, type BreakableServers } from '../trials.ts'

const ttlMs = 4000

describe('zookeeper', () => {
  // A dead process is noticed when its session ends, after twice the longest ttl.
  processTrials({ connector: 'zookeeper', start, nextWithinMs: 30_000, ttlMs })
  faultTrials({ start, survivesRestart: true, ttlMs })
})

async function start(): Promise<BreakableServers> {
  const server = await startZookeeper()
  const address = `${server.host}:${server.port}`
  return {
    env: { RINGFENCE_SERVERS: address, RINGFENCE_MAX_TTL_MS: String(ttlMs) },
    engine: async () => zookeeper(driver, address, { maxTtl: ttlMs }),
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    kill: () => server.kill(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

import * as driver from 'node-zookeeper-client'
import { describe } from 'vitest'
import { zookeeper } from '../../../src/engines/zookeeper/index.ts'
import { startZookeeper } from '../../../harness/servers/zookeeper.ts'
import { readerTrials } from '../readers-and-writers.ts'
import { faultTrials, processTrials, type BreakableServers } from '../trials.ts'

describe.concurrent('zookeeper', () => {
  // A dead process is noticed when its session ends, after twice the longest ttl.
  processTrials({ connector: 'zookeeper', start, nextWithinMs: 40_000 })
  readerTrials({ connector: 'zookeeper', start, nextWithinMs: 40_000 })
  faultTrials({ start: () => start(10_000), survivesRestart: true })
})

async function start(maxTtl: number): Promise<BreakableServers> {
  const server = await startZookeeper()
  const address = `${server.host}:${server.port}`
  return {
    env: { RINGFENCE_SERVERS: address, RINGFENCE_MAX_TTL_MS: String(maxTtl) },
    engine: async () => zookeeper(driver, address, { maxTtl }),
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    kill: () => server.kill(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

import { describe } from 'vitest'
import { etcd } from '../../../src/engines/etcd/index.ts'
import { startEtcd } from '../../../harness/servers/etcd.ts'
import { readerTrials } from '../readers-and-writers.ts'
import { faultTrials, processTrials, type BreakableServers } from '../trials.ts'

describe.concurrent('etcd', () => {
  processTrials({ connector: 'etcd', start, nextWithinMs: 30_000 })
  readerTrials({ connector: 'etcd', start, nextWithinMs: 30_000 })
  faultTrials({ start, survivesRestart: true })
})

async function start(): Promise<BreakableServers> {
  const server = await startEtcd()
  return {
    env: { RINGFENCE_URLS: server.url },
    engine: async () => etcd(server.url),
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    kill: () => server.kill(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

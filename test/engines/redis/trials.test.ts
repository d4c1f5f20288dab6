import { Redis } from 'ioredis'
import { describe } from 'vitest'
import { redis } from '../../../src/engines/redis/index.ts'
import { startRedis } from '../../../harness/servers/redis.ts'
import { faultTrials, processTrials, type BreakableServers } from '../trials.ts'

describe.concurrent('redis', () => {
  processTrials({ connector: 'redis', start, nextWithinMs: 30_000 })
  // Without persistence, a restart forgets the lease.
  faultTrials({ start, survivesRestart: false })
})

async function start(): Promise<BreakableServers> {
  const server = await startRedis()
  return {
    env: { RINGFENCE_PORT: String(server.port) },
    async engine() {
      const client = new Redis({ host: server.host, port: server.port }).on('error', () => undefined)
      const engine = redis(client)
      const close = engine.close.bind(engine)
      return Object.assign(engine, { close: () => close().finally(() => client.disconnect()) })
    },
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    kill: () => server.kill(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

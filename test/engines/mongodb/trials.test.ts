import { MongoClient } from 'mongodb'
import { describe } from 'vitest'
import { mongodb } from '../../../src/engines/mongodb/index.ts'
import { startMongodb } from '../../../harness/servers/mongodb.ts'
import { faultTrials, processTrials, sharedTrials, type BreakableServers } from '../trials.ts'

// Without a replica set waiters poll, and two who take turns hardly meet; see docs/engines/mongodb.md.
describe.concurrent('mongodb, a replica set', () => {
  processTrials({ connector: 'mongodb', start: () => start(true), nextWithinMs: 30_000 })
})

describe.concurrent('mongodb, a server without a replica set', () => {
  faultTrials({ start: () => start(false), survivesRestart: true })
})

// Not beside the others: each has four processes of its own.
describe('mongodb, shared', () => {
  sharedTrials({ connector: 'mongodb', start: () => start(true), nextWithinMs: 30_000 })
})

async function start(replicaSet: boolean): Promise<BreakableServers> {
  const server = await startMongodb({ replicaSet })
  return {
    env: { RINGFENCE_URL: server.url },
    async engine() {
      const client = new MongoClient(server.url)
      const engine = mongodb(client.db('app'))
      const close = engine.close.bind(engine)
      return Object.assign(engine, {
        async close() {
          await close()
          await client.close()
        },
      })
    },
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    kill: () => server.kill(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

import { MongoClient, type MongoClientOptions } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { mongodb } from '../../../src/engines/mongodb/index.ts'
import { startMongodb, type MongodbServer } from '../../../harness/servers/mongodb.ts'
import { conformanceOfTwo } from '../conformance.ts'

let alone: MongodbServer
let replicaSet: MongodbServer

beforeAll(async () => {
  ;[alone, replicaSet] = await Promise.all([startMongodb(), startMongodb({ replicaSet: true })])
})

afterAll(() => Promise.all([alone.stop(), replicaSet.stop()]))

interface Setup {
  readonly server: () => MongodbServer
  readonly options?: MongoClientOptions
}

const setups: Record<string, Setup> = {
  'a server without a replica set': { server: () => alone },
  'a replica set': { server: () => replicaSet },
  'a replica set, a client that was told everything differently': {
    server: () => replicaSet,
    options: {
      promoteValues: false,
      promoteLongs: false,
      readPreference: 'secondaryPreferred',
      writeConcern: { w: 0 },
    },
  },
}

describe.each(Object.entries(setups))('%s', (_name, { server, options = {} }) => {
  const clients: MongoClient[] = []
  let asked = 0

  beforeAll(() => {
    for (let i = 0; i < 2; i++) clients.push(new MongoClient(server().url, options))
  })

  afterAll(async () => {
    for (const client of clients) await client.close()
  })

  // What follows from the short ttl of some cases, a time of 250 ms for a request, is too little for a busy machine.
  const cases = conformanceOfTwo({
    engine: (process) => {
      asked++
      return mongodb(clients[process]!.db('app'), { requestTimeout: '2s' })
    },
    methods: ['handOver', 'adopt', 'watch', 'probe', 'init'],
    shortTtlMs: 500,
    shared: true,
  })

  test.concurrent.each(cases.map((claim) => [claim.name, claim] as const))('%s', async (_name, claim) => {
    await expect(claim.run()).resolves.toBeUndefined()
  })

  test('nothing is left but free documents with their counters: no lease, no cursor', async () => {
    expect(asked).toBeGreaterThan(0)
    const filter = { $expr: { $gt: ['$until', '$$NOW'] } }
    // What `once` leaves ends by itself.
    const held = async (): Promise<unknown> => (await server().command({ find: 'ringfence', filter }, 'app'))['cursor']
    await expect.poll(held, { timeout: 10_000 }).toMatchObject({ firstBatch: [] })
    const { n } = await server().command({ count: 'ringfence', query: { token: { $gt: 0 } } }, 'app')
    expect(n).toBeGreaterThan(20)
    const { metrics } = await server().command({ serverStatus: 1 })
    expect(metrics).toMatchObject({ cursor: { open: { total: 0n } } })
  })
})

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { mariadb } from '../../../src/engines/mariadb/index.ts'
import { startMariadb, type MariadbServer } from '../../../harness/servers/mariadb.ts'
import { conformanceOfTwo } from '../conformance.ts'
import { CLIENTS, type Connected } from './clients.ts'

let server: MariadbServer

beforeAll(async () => {
  server = await startMariadb()
})

afterAll(() => server.stop())

describe.each(Object.entries(CLIENTS))('%s', (_name, connect) => {
  const clients: Connected[] = []

  beforeAll(async () => {
    for (let i = 0; i < 2; i++) clients.push(await connect(server))
  })

  afterAll(async () => {
    for (const client of clients) await client.close()
  })

  // What follows from the short ttl of some cases is too little time for a busy machine.
  const cases = conformanceOfTwo({
    engine: (process) => mariadb(clients[process]!.client, { requestTimeout: '2s' }),
    methods: ['handOver', 'adopt', 'watch', 'probe', 'init'],
    shortTtlMs: 400,
    shared: true,
  })

  test.concurrent.each(cases.map((claim) => [claim.name, claim] as const))('%s', async (_name, claim) => {
    await expect(claim.run()).resolves.toBeUndefined()
  })
})

test('nothing is left on the server but counters', async () => {
  expect(Number(await server.sql('SELECT COUNT(*) FROM ringfence_leases'))).toBeGreaterThan(100)
  const held = 'SELECT resource FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)'
  // What `once` leaves ends by itself.
  await expect.poll(() => server.sql(held), { timeout: 10_000 }).toBe('')
})

import type { Pool } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Engine, LeaseRequest } from '../../../src/engine.ts'
import { postgres } from '../../../src/engines/postgres/index.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { contend, GRANTS } from '../shared/sql/contention.ts'
import { openPool } from './clients.ts'

let server: PostgresServer
const pools: Pool[] = []

beforeAll(async () => {
  server = await startPostgres({ settings: { max_connections: '120' } })
})

afterAll(async () => {
  for (const pool of pools) await pool.end()
  await server.stop()
})

function open(isolation = 'read committed', max = 4): Pool {
  const options = `-c default_transaction_isolation=${isolation.replace(' ', '\\ ')}`
  const pool = openPool({ connectionString: server.url, max, options })
  pools.push(pool)
  return pool
}

test.each(['read committed', 'repeatable read', 'serializable'])(
  'with %s, overlapping sets of resources exclude each other, and nothing of what collides below is seen above',
  async (isolation) => {
    const { grants, failures } = await contend(() => postgres(open(isolation), { requestTimeout: '10s' }))
    expect({ grants, failures }).toEqual({ grants: GRANTS, failures: [] })
  },
)

test('nobody waited for each other in a circle: rows are locked in one order', async () => {
  expect(await server.sql('SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()')).toBe('0')
})

test('attempts at overlapping pairs, all at the same moment: never a row that two have', async () => {
  const engines: Engine[] = Array.from({ length: 8 }, () => postgres(open(), { requestTimeout: '10s' }))
  const names = ['p', 'q', 'r']
  const pairs = [[0, 1], [1, 2], [0, 2]].map((pair) => pair.map((index) => names[index]!)) // prettier-ignore
  let granted = 0
  for (let round = 0; round < 10; round++) {
    const requests: LeaseRequest[] = engines.map((_, index) => ({
      resources: pairs[index % 3]!,
      owner: `${round}:${index}`,
      ttlMs: 30_000,
    }))
    const outcomes = await Promise.all(requests.map((request, index) => engines[index]!.acquire(request)))
    const winners = requests.filter((_, index) => outcomes[index]!.kind === 'granted')
    // Any two of the pairs have a resource in common.
    expect(winners.length).toBeLessThanOrEqual(1)
    granted += winners.length
    const owners = await server.sql(`SELECT DISTINCT owner FROM ringfence_leases WHERE owner LIKE '${round}:%'`)
    expect(owners).toBe(winners.map(({ owner }) => owner).join())
    for (const winner of winners) {
      expect(await engines[0]!.release({ ...winner, token: 0n })).toEqual({ ours: true, awaited: 0 })
    }
  }
  expect(granted).toBeGreaterThan(0)
})

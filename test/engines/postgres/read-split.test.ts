import type { Pool } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { postgres, postgresAdvisory, withAdvisoryLock, type PostgresLike } from '../../../src/engines/postgres/index.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { until } from '../../../harness/until.ts'
import { grant, leasesOf, request } from '../shared/sql/requests.ts'
import { connectedClient, openPool } from './clients.ts'

let primary: PostgresServer
let replica: PostgresServer
let toPrimary: Pool
let toReplica: Pool

beforeAll(async () => {
  primary = await startPostgres()
  replica = await startPostgres({ replicaOf: primary })
  toPrimary = openPool({ connectionString: primary.url })
  toReplica = openPool({ connectionString: replica.url })
})

afterAll(async () => {
  await toPrimary?.end()
  await toReplica?.end()
  await replica?.stop()
  await primary?.stop()
})

/** Software that spreads reads: what begins with SELECT goes to the replica, everything else to the primary. */
function splitting(): PostgresLike {
  return {
    query: (text: string, params: string[]) => (/^\s*SELECT\b/i.test(text) ? toReplica : toPrimary).query(text, params),
  }
}

test('a lease that is bound to a living session is not taken because a replica knows nothing of that session', async () => {
  const holder = postgresAdvisory(() => connectedClient(primary.url))
  const rival = postgres(splitting(), { listen: false })
  const lease = await grant(holder, { resources: ['bound'] })
  const there = `SELECT count(*) FROM ringfence_leases WHERE resource = 'bound'`
  await until(async () => (await replica.sql(there)) === '1', { what: 'the replica has the lease' })
  expect(await rival.acquire(request({ resources: ['bound'] }))).toMatchObject({ kind: 'refused', holder: lease.owner })
  expect(await leasesOf(rival)).toMatchObject([{ resource: 'bound', owner: lease.owner }])
  expect(await holder.extend([lease])).toEqual([{ kind: 'held' }])
  await Promise.all([holder.close(), rival.close()])
})

test.each([0, 1000])('withAdvisoryLock with a wait of %s ms refuses the lock of a replica', async (wait) => {
  const locked = withAdvisoryLock(toReplica, 'a', () => Promise.reject(new Error('must not run')), { wait })
  await expect(locked).rejects.toMatchObject({
    code: 'ENGINE',
    transient: false,
    message: expect.stringContaining('a replica has answered') as string,
  })
})

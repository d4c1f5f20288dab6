import { Client, type PoolConfig } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Finding } from '../../../src/engine.ts'
import {
  postgres,
  postgresAdvisory,
  postgresSchema,
  type PostgresOptions,
} from '../../../src/engines/postgres/index.ts'
import { server } from '../../../harness/binaries.ts'
import { startPgbouncer } from '../../../harness/servers/pgbouncer.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { connectedClient, openPool } from './clients.ts'

const { version } = server('postgres')

/** One in order, and one as the tests usually start it, which forgets. */
let sound: PostgresServer
let careless: PostgresServer

beforeAll(async () => {
  ;[sound, careless] = await Promise.all([startPostgres({ settings: { fsync: 'on' } }), startPostgres()])
  await sound.sql(postgresSchema())
})

afterAll(() => Promise.all([sound.stop(), careless.stop()]))

async function check(
  server: { readonly port: number },
  options: PostgresOptions = {},
  config: PoolConfig = {},
): Promise<readonly Finding[]> {
  const pool = openPool({ host: '127.0.0.1', port: server.port, user: 'postgres', database: 'postgres', ...config })
  const engine = postgres(pool, options)
  try {
    return await engine.check(30_000)
  } finally {
    await engine.close()
    await pool.end()
  }
}

/** A user whose sessions have this setting. (pg 8.0 does not know the parameter `options` of a connection.) */
async function userWith(setting: string, value: string): Promise<string> {
  const user = `with_${setting}`
  await sound.sql(`CREATE ROLE ${user} SUPERUSER LOGIN; ALTER ROLE ${user} SET ${setting} = '${value}'`)
  return user
}

function finding(findings: readonly Finding[], id: string): Pick<Finding, 'severity' | 'found'> | undefined {
  const found = findings.find((each) => each.id === `postgres/${id}`)
  return found === undefined ? undefined : { severity: found.severity, found: found.found }
}

test('a server in order has nothing but good findings', async () => {
  const findings = await check(sound)
  expect(findings.filter(({ severity }) => severity !== 'ok')).toEqual([])
  expect(findings.map(({ id }) => id)).toEqual([
    'postgres/version',
    'postgres/writable',
    'postgres/durability',
    'postgres/table',
    'postgres/isolation',
    'postgres/wake-ups',
    'postgres/clock-speed',
    'postgres/clock',
    'postgres/round-trip',
  ])
})

test('fsync = off is critical', async () => {
  const found = 'The setting fsync is off, and full_page_writes is on.'
  expect(finding(await check(careless), 'fsync')).toEqual({ severity: 'critical', found })
})

test('synchronous_commit = off is a warning', async () => {
  const findings = await check(sound, {}, { user: await userWith('synchronous_commit', 'off') })
  expect(finding(findings, 'synchronous-commit')).toMatchObject({ severity: 'warning' })
})

test('a replica is critical, and an attempt on it fails in a way that a failover may cure', async () => {
  await using replica = await startPostgres({ standby: true })
  expect(finding(await check(replica), 'writable')).toEqual({
    severity: 'critical',
    found: 'This server is a replica (pg_is_in_recovery).',
  })
  const pool = openPool({ connectionString: replica.url })
  const engine = postgres(pool)
  const request = { resources: ['a'], owner: 'o', ttlMs: 10_000 }
  await expect(engine.acquire(request)).rejects.toMatchObject({
    transient: true,
    message: expect.stringContaining('read-only') as string,
  })
  await engine.close()
  await pool.end()
})

test('read-only transactions are critical', async () => {
  const findings = await check(sound, {}, { user: await userWith('default_transaction_read_only', 'on') })
  expect(finding(findings, 'writable')).toEqual({
    severity: 'critical',
    found: 'The setting default_transaction_read_only is on.',
  })
})

test('a replica that is not synchronous is a warning about failover', async () => {
  const replica = new Client({ connectionString: sound.url, replication: 'true' } as PoolConfig)
  await replica.connect()
  expect(finding(await check(sound), 'failover')).toEqual({
    severity: 'warning',
    found: 'The server has 1 replica, which is not synchronous.',
  })
  await replica.end()
})

test('an unlogged table is critical', async () => {
  await sound.sql(postgresSchema('careless').replace('CREATE TABLE', 'CREATE UNLOGGED TABLE'))
  const findings = await check(sound, { table: 'careless' })
  expect(finding(findings, 'table')).toEqual({ severity: 'critical', found: 'The table "careless" is unlogged.' })
})

test('a missing table is worth a note where it can be created, and critical where not', async () => {
  expect(finding(await check(careless), 'table')).toMatchObject({ severity: 'note' })
  expect(finding(await check(careless, { createTable: false }), 'table')).toMatchObject({ severity: 'critical' })
  // Before PostgreSQL 15 everybody may create tables.
  await careless.sql('CREATE ROLE guest LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC')
  const findings = await check(careless, {}, { user: 'guest' })
  expect(finding(findings, 'table')).toEqual({ severity: 'critical', found: 'There is no table "ringfence_leases".' })
})

test('a table without our columns, or one that may not be used, is critical', async () => {
  await sound.sql(
    'CREATE TABLE other (resource text, token bigint, owner text); CREATE ROLE reader LOGIN; GRANT SELECT ON ringfence_leases TO reader',
  )
  expect(finding(await check(sound, { table: 'other' }), 'table')).toEqual({
    severity: 'critical',
    found:
      'The table "other" does not have the columns session, acquired_at, expires_at, awaited, readers, wanted_until.',
  })
  expect(finding(await check(sound, {}, { user: 'reader' }), 'table')).toEqual({
    severity: 'critical',
    found: 'This role lacks a permission on "ringfence_leases": insert, update.',
  })
})

test('a table of an earlier version is critical, and the remedy names the statement', async () => {
  await sound.sql(`${postgresSchema('earlier')} ALTER TABLE earlier DROP COLUMN readers, DROP COLUMN wanted_until`)
  const findings = await check(sound, { table: 'earlier' })
  expect(findings.find(({ id }) => id === 'postgres/table')).toMatchObject({
    severity: 'critical',
    found: 'The table "earlier" does not have the columns readers, wanted_until.',
    remedy: expect.stringContaining('ALTER TABLE "earlier" ADD COLUMN') as string,
  })
})

test('another isolation level is worth a note', async () => {
  const findings = await check(sound, {}, { user: await userWith('default_transaction_isolation', 'serializable') })
  expect(finding(findings, 'isolation')).toMatchObject({ severity: 'note' })
})

test('a transaction pooler is seen by our own words that we do not hear', async () => {
  await using pooler = await startPgbouncer(sound.port, { mode: 'transaction' })
  expect(finding(await check(pooler), 'wake-ups')).toMatchObject({
    severity: 'note',
    found: expect.stringContaining('did not arrive') as string,
  })
})

test('a client that can not listen, and one that shall not, are told apart', async () => {
  expect(finding(await check(sound, { listen: false }), 'wake-ups')).toMatchObject({
    found: 'The option listen is false.',
  })
  const pool = openPool({ connectionString: sound.url })
  const engine = postgres({ query: (text: string, params: string[]) => pool.query(text, params) })
  expect(finding(await engine.check(30_000), 'wake-ups')).toMatchObject({ found: 'This client cannot listen.' })
  await engine.close()
  await pool.end()
})

// PostgreSQL 13 has no such setting.
test.skipIf(version.startsWith('13.'))(
  'an idle session that the server ends is a warning where leases end with it',
  async () => {
    const user = await userWith('idle_session_timeout', '10s')
    const hasty = postgresAdvisory(() => connectedClient(sound.url.replace('postgres@', `${user}@`)))
    expect(finding(await hasty.check(30_000), 'session')).toEqual({
      severity: 'warning',
      found: 'The setting idle_session_timeout is 10s.',
    })
    await hasty.close()
    const patient = postgresAdvisory(() => connectedClient(sound.url))
    expect(finding(await patient.check(30_000), 'session')).toMatchObject({ severity: 'ok' })
    await patient.close()
  },
)

test('a server that can not be reached is critical, and a wrong role is', async () => {
  expect(await check({ port: 1 })).toEqual([
    expect.objectContaining({
      id: 'postgres/reachable',
      severity: 'critical',
      found: expect.stringContaining('ECONNREFUSED') as string,
    }),
  ])
  expect(await check(sound, {}, { user: 'nobody' })).toMatchObject([
    { id: 'postgres/reachable', found: 'A statement failed: role "nobody" does not exist.' },
  ])
})

test('a server that takes long against the ttl is a warning', async () => {
  const pool = openPool({ connectionString: sound.url })
  const engine = postgres(pool)
  const findings = await engine.check(0.001)
  expect(finding(findings, 'round-trip')).toMatchObject({ severity: 'warning' })
  await engine.close()
  await pool.end()
})

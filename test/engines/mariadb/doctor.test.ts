import { createPool, type PoolOptions } from 'mysql2/promise'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Finding } from '../../../src/engine.ts'
import { mariadb, mariadbSchema, type MariadbOptions } from '../../../src/engines/mariadb/index.ts'
import { startMariadb, type MariadbServer } from '../../../harness/servers/mariadb.ts'
import { addressOf } from './clients.ts'

let server: MariadbServer

beforeAll(async () => {
  server = await startMariadb()
  await server.sql(mariadbSchema())
})

afterAll(() => server.stop())

async function check(options: MariadbOptions = {}, some: PoolOptions = {}): Promise<readonly Finding[]> {
  const pool = createPool({ ...addressOf(server), ...some })
  const engine = mariadb(pool, options)
  try {
    return await engine.check(30_000)
  } finally {
    await engine.close()
    await pool.end()
  }
}

function finding(findings: readonly Finding[], id: string): Pick<Finding, 'severity' | 'found'> | undefined {
  const found = findings.find((each) => each.id === `mariadb/${id}`)
  return found === undefined ? undefined : { severity: found.severity, found: found.found }
}

/** With a setting for a while. */
async function having<T>(setting: string, before: string, work: () => Promise<T>): Promise<T> {
  await server.sql(`SET GLOBAL ${setting}`)
  try {
    return await work()
  } finally {
    await server.sql(`SET GLOBAL ${before}`)
  }
}

test('a server in order has nothing but good findings', async () => {
  const findings = await check()
  expect(findings.filter(({ severity }) => severity !== 'ok')).toEqual([])
  expect(findings.map(({ id }) => id)).toEqual([
    'mariadb/version',
    'mariadb/writable',
    'mariadb/autocommit',
    'mariadb/flush-log',
    'mariadb/table',
    'mariadb/isolation',
    'mariadb/sql-mode',
    'mariadb/clock-speed',
    'mariadb/clock',
    'mariadb/round-trip',
  ])
})

test('read_only is critical', async () => {
  const findings = await having('read_only = ON', 'read_only = OFF', () => check())
  expect(finding(findings, 'writable')).toEqual({
    severity: 'critical',
    found: 'The server is read-only: read_only is on.',
  })
})

test.each(['0', '2'])('innodb_flush_log_at_trx_commit = %s is a warning', async (value) => {
  const setting = 'innodb_flush_log_at_trx_commit'
  const findings = await having(`${setting} = ${value}`, `${setting} = 1`, () => check())
  expect(finding(findings, 'flush-log')).toEqual({ severity: 'warning', found: `The setting ${setting} is ${value}.` })
})

test('autocommit = 0 is critical', async () => {
  const findings = await having('autocommit = 0', 'autocommit = 1', () => check())
  expect(finding(findings, 'autocommit')).toEqual({ severity: 'critical', found: 'The setting autocommit is off.' })
})

test('a table of another engine is critical', async () => {
  // Which has shorter keys.
  await server.sql(mariadbSchema('old').replace('InnoDB', 'MyISAM').replace('1024', '512'))
  const findings = await check({ table: 'old' })
  expect(finding(findings, 'table')).toEqual({ severity: 'critical', found: 'The table `old` has the engine MyISAM.' })
})

test('a missing table is worth a note where it is created, and critical where not; some other table is critical', async () => {
  expect(finding(await check({ table: 'none' }), 'table')).toMatchObject({ severity: 'note' })
  expect(finding(await check({ table: 'none', createTable: false }), 'table')).toMatchObject({ severity: 'critical' })
  await server.sql('CREATE TABLE other (resource int, token int)')
  expect(finding(await check({ table: 'other' }), 'table')).toEqual({
    severity: 'critical',
    found: 'The table `other` does not have the columns owner, acquired_at, expires_at, readers, wanted_until.',
  })
})

test('a table of an earlier version is critical, and the remedy names the statement', async () => {
  await server.sql(`${mariadbSchema('earlier')} ALTER TABLE earlier DROP COLUMN readers, DROP COLUMN wanted_until`)
  const findings = await check({ table: 'earlier' })
  expect(findings.find(({ id }) => id === 'mariadb/table')).toMatchObject({
    severity: 'critical',
    found: 'The table `earlier` does not have the columns readers, wanted_until.',
    remedy: expect.stringContaining('ALTER TABLE `earlier` MODIFY COLUMN owner') as string,
  })
})

test('a loose sql_mode and serializable transactions are worth a note', async () => {
  const loose = await having(`sql_mode = ''`, 'sql_mode = DEFAULT', () => check())
  expect(finding(loose, 'sql-mode')).toMatchObject({ severity: 'note' })
  const serial = await having(
    'TRANSACTION ISOLATION LEVEL SERIALIZABLE',
    'TRANSACTION ISOLATION LEVEL REPEATABLE READ',
    () => check(),
  )
  expect(finding(serial, 'isolation')).toEqual({ severity: 'note', found: 'The isolation level is SERIALIZABLE.' })
})

test('a server that can not be reached is critical', async () => {
  expect(await check({}, { port: 1 })).toMatchObject([{ id: 'mariadb/reachable', severity: 'critical' }])
})

import { createPool, type Pool } from 'mysql2/promise'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { mariadb, mariadbSchema, type MariadbLike } from '../../../src/engines/mariadb/index.ts'
import { createLocks } from '../../../src/locks.ts'
import { startMariadb, type MariadbServer } from '../../../harness/servers/mariadb.ts'
import { until } from '../../../harness/until.ts'
import { grant, request } from '../shared/sql/requests.ts'
import { addressOf } from './clients.ts'

let primary: MariadbServer
let replica: MariadbServer
let toPrimary: Pool
let toReplica: Pool

beforeAll(async () => {
  primary = await startMariadb({ settings: { 'log-bin': 'binlog', 'server-id': '1', 'binlog-format': 'ROW' } })
  replica = await startMariadb({ settings: { 'server-id': '2', 'read-only': 'ON' } })
  await replica.sql(`CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = ${primary.port}, MASTER_USER = 'copy',
    MASTER_LOG_FILE = 'binlog.000001', MASTER_LOG_POS = 4`)
  await primary.sql(
    `CREATE USER copy@'127.0.0.1'; GRANT REPLICATION SLAVE ON *.* TO copy@'127.0.0.1'; ${mariadbSchema()}`,
  )
  await replica.sql('START SLAVE')
  toPrimary = createPool(addressOf(primary))
  toReplica = createPool(addressOf(replica))
})

afterEach(() => replica.sql('START SLAVE SQL_THREAD'))

afterAll(async () => {
  await toPrimary?.end()
  await toReplica?.end()
  await replica?.stop()
  await primary?.stop()
})

const isPlainRead = (sql: string): boolean => /^\s*SELECT\b/i.test(sql) && !/\bFOR UPDATE\s*$/i.test(sql)

/** What MaxScale and ProxySQL do: plain reads go to the replica, everything else to the primary. */
function splitting(): MariadbLike {
  return { query: (sql: string) => (isPlainRead(sql) ? toReplica : toPrimary).query(sql) }
}

async function lagFrom(resource: string): Promise<void> {
  const there = `SELECT COUNT(*) FROM ringfence_leases WHERE resource = '${resource}' AND owner IS NOT NULL`
  await until(async () => (await replica.sql(there)) === '1', { what: 'the replica has the lease', everyMs: 50 })
  await replica.sql('STOP SLAVE SQL_THREAD')
}

async function end(resource: string): Promise<void> {
  await primary.sql(`UPDATE ringfence_leases SET owner = NULL WHERE resource = '${resource}'`)
}

test('a lease that was ended by hand and taken by another is lost, though a replica still has it', async () => {
  const [one, two] = [mariadb(splitting()), mariadb(toPrimary)]
  const lease = await grant(one, { resources: ['renewed'] })
  await lagFrom('renewed')
  await end('renewed')
  await grant(two, { resources: ['renewed'] })
  expect(await one.extend([lease])).toEqual([{ kind: 'lost' }])
  await Promise.all([one.close(), two.close()])
})

test('a free lock is granted at once, though a replica still shows its last holder', async () => {
  const [one, two] = [createLocks(mariadb(splitting())), mariadb(toPrimary)]
  await grant(two, { resources: ['freed'] })
  await lagFrom('freed')
  await end('freed')
  await using lease = await one.acquire('freed', { wait: 0 })
  expect(await two.acquire(request({ resources: ['freed'] }))).toMatchObject({ kind: 'refused', holder: lease.owner })
  await two.close()
})

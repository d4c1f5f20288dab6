import { createPool } from 'mysql2/promise'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Clock } from '../../../src/clock.ts'
import type { Engine } from '../../../src/engine.ts'
import { recogniseMariadb } from '../../../src/engines/mariadb/client.ts'
import { mariadb } from '../../../src/engines/mariadb/index.ts'
import { MariadbSteps } from '../../../src/engines/mariadb/steps.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startMariadb, type MariadbServer } from '../../../harness/servers/mariadb.ts'
import { testLostGrant, testReaders } from '../shared/readers.ts'
import { grant } from '../shared/sql/requests.ts'
import { addressOf } from './clients.ts'

let server: MariadbServer
const opened: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  server = await startMariadb()
})

afterEach(async () => {
  for (const close of opened.splice(0)) await close()
})

afterAll(() => server.stop())

interface OpenOptions {
  readonly clock?: Clock | undefined
  readonly port?: number
  /** What happens to a statement on its way. */
  readonly rewrite?: (sql: string) => string
  /** Runs first on each connection. */
  readonly setting?: string
}

function open({ clock, port = server.port, rewrite = (sql) => sql, setting }: OpenOptions = {}): Engine {
  const pool = createPool({ ...addressOf(server), port, connectionLimit: 4 })
  if (setting !== undefined) pool.pool.on('connection', (connection) => void connection.query(`SET ${setting}`))
  const engine = mariadb(
    { query: (sql: string) => pool.query(rewrite(sql)) },
    { requestTimeout: '10s', ...(clock === undefined ? {} : { clock }) },
  )
  opened.push(
    () => engine.close(),
    () => pool.end(),
  )
  return engine
}

describe.each([
  ['as it is', ''],
  ['read committed', 'tx_isolation = "READ-COMMITTED"'],
  ['assignments that do not see each other', 'sql_mode = "SIMULTANEOUS_ASSIGNMENT,STRICT_ALL_TABLES"'],
])('%s', (_name, setting) => {
  testReaders((clock) => open({ clock, ...(setting === '' ? {} : { setting }) }))
})

describe('a server whose insertions return no rows', () => {
  testReaders((clock) => open({ clock, rewrite: (sql) => sql.replace('RETURNING', 'RETOURNING') }))
})

test('a reader’s grant whose answer is lost is undone, and no other reader is', async () => {
  await using proxy = await startProxy(server.port)
  await testLostGrant(open({ port: proxy.port }), open(), () => proxy.cutOnNextReply('INSERT'))
  expect(proxy.lostReplies).toBe(1)
})

test('those who look see whether a resource is free, shared or neither', async () => {
  const pool = createPool(addressOf(server))
  opened.push(() => pool.end())
  const steps = new MariadbSteps(recogniseMariadb(pool), 'ringfence_leases')
  const engine = open()
  const reader = await grant(engine, { shared: true })
  const [name] = reader.resources
  expect(await steps.free([name!])).toEqual(new Map([[name, `shared ${reader.token}`]]))
  await engine.release(reader)
  expect(await steps.free([name!])).toEqual(new Map([[name, String(reader.token)]]))
  await grant(engine, { resources: [name!] })
  expect(await steps.free([name!])).toEqual(new Map())
})

test('readers who died are not kept in the row, and a row that nobody shares has none', async () => {
  const engine = open()
  const { resources } = await grant(engine, { shared: true, ttlMs: 1 })
  const two = await grant(engine, { resources, shared: true })
  const three = await grant(engine, { resources, shared: true })
  const count = `SELECT COALESCE(JSON_LENGTH(readers), 'none') FROM ringfence_leases WHERE resource = '${resources[0]}'`
  expect(await server.sql(count)).toBe('2')
  for (const lease of [two, three]) await engine.release(lease)
  expect(await server.sql(count)).toBe('none')
})

test('a person who does not know whether a lease is shared can end it', async () => {
  const engine = open()
  const { shared, ...reader } = await grant(engine, { shared: true })
  expect(shared).toBe(true)
  expect(await engine.release(reader)).toMatchObject({ ours: true })
  expect(await engine.release(await grant(engine))).toMatchObject({ ours: true })
})

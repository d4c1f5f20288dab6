import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Clock } from '../../../src/clock.ts'
import type { Engine } from '../../../src/engine.ts'
import { postgres } from '../../../src/engines/postgres/index.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startPgbouncer } from '../../../harness/servers/pgbouncer.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import type { ServerHandle } from '../../../harness/handle.ts'
import { testLostGrant, testReaders } from '../shared/readers.ts'
import { grant, request } from '../shared/sql/requests.ts'
import { openPool } from './clients.ts'

let server: PostgresServer
let pooler: ServerHandle
const opened: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  server = await startPostgres({ settings: { max_connections: '120' } })
  pooler = await startPgbouncer(server.port, { mode: 'transaction', poolSize: 8 })
})

afterEach(async () => {
  for (const close of opened.splice(0)) await close()
})

afterAll(async () => {
  await pooler.stop()
  await server.stop()
})

function open(url: string, options: string, clock?: Clock): Engine {
  const pool = openPool({ connectionString: url, max: 4, ...(options === '' ? {} : { options }) })
  const engine = postgres(pool, { requestTimeout: '10s', ...(clock === undefined ? {} : { clock }) })
  opened.push(
    () => engine.close(),
    () => pool.end(),
  )
  return engine
}

describe.each(['read committed', 'repeatable read', 'serializable'])('%s', (isolation) => {
  testReaders((clock) => open(server.url, `-c default_transaction_isolation=${isolation.replace(' ', '\\ ')}`, clock))
})

describe('through a transaction pooler', () => {
  testReaders((clock) => open(pooler.url, '', clock))
})

test('nobody waited for each other in a circle: rows are locked in one order', async () => {
  expect(await server.sql('SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()')).toBe('0')
})

test('a reader’s grant whose answer is lost is undone, and no other reader is', async () => {
  await using proxy = await startProxy(server.port)
  const behind = open(server.url.replace(String(server.port), String(proxy.port)), '')
  await testLostGrant(behind, open(server.url, ''), () => proxy.cutOnNextReply('INSERT'))
  expect(proxy.lostReplies).toBe(1)
})

test('the last reader’s release notifies those who wait, and no earlier one does', async () => {
  const [one, two] = [open(server.url, ''), open(server.url, '')]
  const first = await grant(one, { shared: true })
  const { resources } = first
  const second = await grant(one, { resources, shared: true })
  let woken = 0
  const watch = two.watch!(resources, () => woken++)
  expect(await watch.armed).toBe(true)
  expect(await two.acquire(request({ resources, waits: true }))).toMatchObject({ kind: 'refused' })
  expect(await one.release(first)).toEqual({ ours: true, awaited: 0 })
  expect(await one.release(second)).toEqual({ ours: true, awaited: 1 })
  await expect.poll(() => woken).toBe(1)
  // A reader that the writer keeps out, although nobody has it, hears of the writer's release.
  expect(await two.acquire(request({ resources, shared: true }))).toMatchObject({ kind: 'refused' })
  const writer = await grant(one, { resources })
  expect(await one.release(writer)).toEqual({ ours: true, awaited: 1 })
  await expect.poll(() => woken).toBe(2)
  watch.close()
  await grant(two, { resources, shared: true })
})

test('readers who died are not kept in the row', async () => {
  const engine = open(server.url, '')
  const { resources } = await grant(engine, { shared: true, ttlMs: 1 })
  await grant(engine, { resources, shared: true })
  await grant(engine, { resources, shared: true })
  const count = `SELECT count(*) FROM ringfence_leases, jsonb_object_keys(readers) WHERE resource = '${resources[0]}'`
  expect(await server.sql(count)).toBe('2')
})

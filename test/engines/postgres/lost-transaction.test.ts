import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { withAdvisoryLock } from '../../../src/engines/postgres/index.ts'
import { postgresGuard } from '../../../src/guards/index.ts'
import { freshResource, gate, leaseOf } from '../../guards/suite.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { createFolder } from '../../../harness/temporary-folder.ts'
import { until } from '../../../harness/until.ts'

let server: PostgresServer
let file: string

beforeAll(async () => {
  server = await startPostgres()
  await server.sql('CREATE TABLE item (id int PRIMARY KEY, v text)')
  file = join(createFolder('late'), 'late.sql')
  await writeFile(file, `UPDATE item SET v = 'stale'`)
})

beforeEach(() => server.sql(`TRUNCATE item; INSERT INTO item VALUES (1, '-')`))
afterAll(() => server?.stop())

const LATE: Record<string, (tx: postgres.TransactionSql) => PromiseLike<unknown>> = {
  'a template': (tx) => tx`UPDATE item SET v = 'stale'`,
  'a text': (tx) => tx.unsafe(`UPDATE item SET v = 'stale'`),
  'a file': (tx) => tx.file(file),
  'a savepoint': (tx) => tx.savepoint((inner) => inner`UPDATE item SET v = 'stale'`),
  'a cursor': async (tx) => {
    for await (const _rows of tx`UPDATE item SET v = 'stale' RETURNING v`.cursor()) continue
  },
}

const told = (running: PromiseLike<unknown>): Promise<string> =>
  Promise.resolve(running).then(
    () => 'it was done',
    (error: unknown) => String(error),
  )

/** Other requests of the same program, on the same connections. */
function traffic(sql: postgres.Sql, count: number): { stop(): Promise<void>; readonly failures: string[] } {
  const over = new AbortController()
  const failures: string[] = []
  const run = async (): Promise<void> => {
    while (!over.signal.aborted) {
      await sql.begin(async (tx) => {
        await tx`INSERT INTO other VALUES (1)`
        await tx`SELECT pg_sleep(0.002)`
      })
    }
  }
  const runs = Array.from({ length: count }, () => run().catch((error: unknown) => void failures.push(String(error))))
  return {
    failures,
    async stop() {
      over.abort()
      await Promise.all(runs)
    },
  }
}

describe.each([1, 10])('postgres.js with a pool of %i, in a transaction that the server has ended', (max) => {
  test.each(Object.keys(LATE))('%s that comes late is not sent over another connection', async (how) => {
    await server.sql('CREATE TABLE IF NOT EXISTS other (n int)')
    const sql = postgres(server.url, { max, onnotice: () => undefined })
    const other = postgres(server.url, { max: 1, onnotice: () => undefined })
    const [inside, newer, done] = [gate(), gate(), gate()]
    const resource = freshResource()
    let pid = 0
    let late = ''
    const older = postgresGuard(sql).transaction(leaseOf(resource, 1n), async (tx) => {
      pid = (await tx`SELECT pg_backend_pid() AS pid`)[0]!['pid'] as number
      // Made in time, and awaited too late.
      const prepared = tx`UPDATE item SET v = 'stale'`
      inside.open()
      await newer.opened
      late = await told(LATE[how]!(tx))
      late += await told(prepared)
      done.open()
    })
    const outcome = told(older)
    await inside.opened
    const requests = traffic(sql, max * 2)
    await server.sql(`SELECT pg_terminate_backend(${pid})`)
    expect(await outcome).toMatch(/CONNECTION_CLOSED|terminating connection/)
    await postgresGuard(other).transaction(leaseOf(resource, 2n), (tx) => tx`UPDATE item SET v = 'newer'`)
    // The connection is in use again, by others.
    await until(async () => Number(await server.sql('SELECT count(*) FROM other')) > 20, { what: 'other requests' })
    newer.open()
    await done.opened
    await requests.stop()
    expect(late).toMatch(/the statement was not sent.*the statement was not sent/s)
    expect(requests.failures).toEqual([])
    expect(await server.sql('SELECT v FROM item')).toBe('newer')
    await Promise.all([sql.end({ timeout: 1 }), other.end({ timeout: 1 })])
    await server.sql('TRUNCATE other')
  })
})

test('postgres.js: what the work did not await is not sent after its transaction', async () => {
  const sql = postgres(server.url, { max: 1, onnotice: () => undefined })
  let tx!: postgres.TransactionSql
  await withAdvisoryLock(sql, 'item', async (given) => void (tx = given))
  expect(await told(tx`UPDATE item SET v = 'stale'`)).toContain('the statement was not sent')
  expect(await server.sql('SELECT v FROM item')).toBe('-')
  await sql.end()
})

test('postgres.js: after a hidden COMMIT nothing is sent, also not to the transaction of others', async () => {
  const sql = postgres(server.url, { max: 1, onnotice: () => undefined })
  const [inside, leave] = [gate(), gate()]
  let beside: Promise<unknown> | undefined
  const ended = withAdvisoryLock(sql, 'item', async (tx) => {
    await tx.unsafe('SELECT 1; COMMIT')
    beside = sql.begin(async (other) => {
      await other`UPDATE item SET v = 'of others'`
      inside.open()
      await leave.opened
    })
    await inside.opened
    await tx`UPDATE item SET v = 'stale'`
  })
  await expect(ended).rejects.toThrow('the work has ended the transaction')
  leave.open()
  await beside
  expect(await server.sql('SELECT v FROM item')).toBe('of others')
  await sql.end()
})

test('postgres.js: savepoints, fragments, files and several statements at once work as before', async () => {
  const sql = postgres(server.url, { max: 1, onnotice: () => undefined })
  const value = await withAdvisoryLock(sql, 'item', async (tx) => {
    await tx
      .savepoint(async (inner) => {
        await inner`UPDATE ${inner('item')} SET v = 'undone'`
        throw new Error('not so')
      })
      .catch(() => undefined)
    const [rows] = await tx.savepoint('named', (inner) => [inner`SELECT v FROM item`, inner`SELECT 1 AS one`])
    await tx.savepoint((inner) => inner.file(file))
    await tx`INSERT INTO item ${tx({ id: 2, v: 'two' })}`
    await tx`UPDATE item SET v = CASE WHEN true THEN 'two' ${tx`END`} WHERE ${tx`id = ${2}`}`
    return rows[0]!['v'] as string
  })
  expect(value).toBe('-')
  expect(await server.sql(`SELECT string_agg(v, ',' ORDER BY id) FROM item`)).toBe('stale,two')
  await expect(withAdvisoryLock(sql, 'item', (tx) => tx.savepoint((inner) => inner`COMMIT`))).rejects.toThrow(
    'the work has ended the transaction',
  )
  await sql.end()
})

import { createPool as createCallbackPool } from 'mariadb/callback'
import { createPool as createMysql2CallbackPool } from 'mysql2'
import { createConnection, createPool, type Pool } from 'mysql2/promise'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { mariadb, mariadbSchema, type MariadbOptions } from '../../../src/engines/mariadb/index.ts'
import { mariadbGuard } from '../../../src/guards/mariadb.ts'
import type { SqlGuard } from '../../../src/guards/sql.ts'
import { createLocks } from '../../../src/locks.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { isMysql, startMariadb, type MariadbServer } from '../../../harness/servers/mariadb.ts'
import { until } from '../../../harness/until.ts'
import { staysWithItsHolder } from '../lost-adoptions.ts'
import { exercised, pageLines, recorded } from '../../operating/least-rights.ts'
import { grant, leasesOf, request } from '../shared/sql/requests.ts'
import { addressOf } from './clients.ts'

let server: MariadbServer
const opened: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  server = await startMariadb()
})

afterAll(() => server.stop())

afterEach(async () => {
  for (const close of opened.splice(0)) await close()
  await server.sql('DROP TABLE IF EXISTS ringfence_leases')
})

function openPool(some: { user?: string; password?: string; database?: string; port?: number } = {}): Pool {
  const pool = createPool({ ...addressOf(server), connectionLimit: 4, ...some })
  opened.push(() => pool.end())
  return pool
}

function open(options: MariadbOptions = {}, pool = openPool()): Engine {
  const engine = mariadb(pool, options)
  opened.unshift(() => engine.close())
  return engine
}

test('the table is created by the first attempt, and by many first attempts at once', async () => {
  const engines = Array.from({ length: 10 }, () => open())
  const outcomes = await Promise.all(engines.map((engine) => engine.acquire(request())))
  expect(outcomes.map(({ kind }) => kind)).toEqual(engines.map(() => 'granted'))
})

test('init says what it did; looking and releasing create nothing', async () => {
  const engine = open()
  const lease = { ...request(), token: 1n }
  expect(await engine.extend([lease])).toEqual([{ kind: 'lost' }])
  expect(await engine.release(lease)).toEqual({ ours: false, awaited: 0 })
  expect(await leasesOf(engine)).toEqual([])
  expect(await engine.init!()).toEqual([`created the table:\n${mariadbSchema()}`])
  expect(await engine.init!()).toEqual(['the table is there'])
})

test('a table of an earlier version is an error that names the statement, and init changes it', async () => {
  await server.sql(`${mariadbSchema()} ALTER TABLE ringfence_leases DROP COLUMN readers, DROP COLUMN wanted_until`)
  const engines = [open(), open()]
  const change =
    'ALTER TABLE `ringfence_leases` MODIFY COLUMN owner VARBINARY(2048) NULL, ADD COLUMN readers JSON NULL, ADD COLUMN wanted_until DATETIME(6) NULL;'
  const message = expect.stringContaining(change) as string
  await expect(engines[0]!.acquire(request())).rejects.toMatchObject({ transient: false, message })
  const said = (await Promise.all(engines.map((engine) => engine.init!()))).flat()
  expect(said).toContain(`changed the table:\n${change}`)
  expect(await engines[0]!.init!()).toEqual(['the table is there'])
  await grant(engines[1]!)
})

test('an account that may not create tables is told the statement, and not to try again', async () => {
  await server.sql('CREATE TABLE nothing (a int); CREATE USER guest; GRANT SELECT ON ringfence.nothing TO guest')
  const engine = open({}, openPool({ user: 'guest' }))
  const message = expect.stringContaining(mariadbSchema()) as string
  await expect(engine.acquire(request())).rejects.toMatchObject({ transient: false })
  await expect(engine.init!()).rejects.toMatchObject({ code: 'ENGINE', transient: false, message })
  await server.sql(`${mariadbSchema()} GRANT SELECT, INSERT, UPDATE ON ringfence.ringfence_leases TO guest`)
  const lease = await grant(engine)
  expect(await engine.release(lease)).toMatchObject({ ours: true })
  await server.sql('DROP USER guest')
})

test('the users of docs/operating/databases.md: one makes and changes the table, the other has all that programs need', async () => {
  await server.sql(pageLines('mariadb.sql'))
  // Which is why it is a database of its own.
  await expect(server.sql('GRANT SELECT ON ringfence.not_yet TO app')).rejects.toThrow("doesn't exist")
  const as = (user: string, password: string): Engine => open({}, openPool({ user, password, database: 'locks' }))
  const app = (): Engine => as('app', 'change-this')
  const init = (): Promise<readonly string[]> => as('locks_init', 'change-this-too').init!()
  await expect(app().init!()).rejects.toMatchObject({ transient: false })
  expect(await init()).toEqual([`created the table:\n${mariadbSchema()}`])
  expect(await exercised(app, open({}, openPool({ database: 'locks' })))).toEqual([])
  await server.sql('ALTER TABLE locks.ringfence_leases DROP COLUMN readers, DROP COLUMN wanted_until')
  await expect(app().init!()).rejects.toMatchObject({ transient: false })
  expect(await init()).toEqual([expect.stringMatching(/^changed the table/)])
  const guard = (user: string, password: string): SqlGuard =>
    mariadbGuard(openPool({ user, password, database: 'locks' }))
  await guard('locks_init', 'change-this-too').init()
  const store = guard('app', 'change-this')
  // As many as are kept, all of them older.
  const old = Array.from(
    { length: 1000 },
    (_, n) => `('${n}', 'nightly', '', 1, UTC_TIMESTAMP(6) - INTERVAL 1 DAY, 'done', 1)`,
  )
  await server.sql(
    `INSERT INTO locks.ringfence_guard_runs (owner, job, engine, token, began_at, outcome, took_ms) VALUES ${old.join(', ')}`,
  )
  await expect(recorded(store)).rejects.toThrow(
    'the run is recorded, but old runs could not be deleted: DELETE command',
  )
  await server.sql(pageLines('mariadb-store.sql'))
  await recorded(store)
  await server.sql('DROP DATABASE locks; DROP USER app, locks_init')
})

test('tokens are numbers of 63 bits to the last digit, and go on growing when rows were lost', async () => {
  const engine = open()
  const lease = await grant(engine)
  await server.sql('DELETE FROM ringfence_leases')
  const second = await grant(engine, { resources: lease.resources })
  expect(second.token).toBeGreaterThan(lease.token)
  await engine.release(second)
  await server.sql('UPDATE ringfence_leases SET token = 9007199254740993')
  const third = await grant(engine, { resources: lease.resources })
  expect(third.token).toBe(9_007_199_254_740_994n)
  const handed = await engine.handOver!(third, request({ resources: lease.resources }))
  expect(handed).toEqual({ kind: 'granted', token: 9_007_199_254_740_995n })
  expect((await leasesOf(engine, lease.resources[0]))[0]?.token).toBe(9_007_199_254_740_995n)
})

test('names that a collation would hold for the same are different ones', async () => {
  const engine = open()
  for (const name of ['job', 'JOB', 'jöb', 'job ', 'ĵob']) await grant(engine, { resources: [name] })
  expect(await leasesOf(engine)).toHaveLength(5)
})

test('a time zone, another sql_mode and another character set change nothing', async () => {
  const odd = await createConnection({ ...addressOf(server), charset: 'latin1', timezone: '+05:00' })
  opened.push(() => odd.end())
  const mode = `NO_BACKSLASH_ESCAPES,ANSI_QUOTES${isMysql() ? '' : ',SIMULTANEOUS_ASSIGNMENT'}`
  await odd.query(`SET time_zone = '-09:00', sql_mode = '${mode}'`)
  const [one, two] = [mariadb(odd), open()]
  const name = `it's "Ω" \\`
  await one.release(await grant(one, { resources: [name] }))
  const lease = await grant(one, { resources: [name], ttlMs: 10_000 })
  const refusal = await two.acquire(request({ resources: [name] }))
  expect(refusal).toMatchObject({ kind: 'refused', holder: lease.owner })
  expect(refusal).toHaveProperty('remainingMs', expect.closeTo(9600, -3))
  expect(await two.release(lease)).toMatchObject({ ours: true })
})

test('in a session without autocommit nothing is granted, since nobody would see it', async () => {
  const connection = await createConnection(addressOf(server))
  opened.push(() => connection.end())
  await open().init!()
  await connection.query('SET autocommit = 0')
  const message = expect.stringContaining('autocommit is off') as string
  await expect(mariadb(connection).acquire(request())).rejects.toMatchObject({ transient: false, message })
})

test('a statement fails as a whole, whatever the sql_mode: one row that is held keeps all the others free', async () => {
  const loose = createPool(addressOf(server))
  opened.push(() => loose.end())
  await server.sql(`SET GLOBAL sql_mode = ''`)
  const [one, two] = [open({}, loose), open()]
  for (let round = 0; round < 20; round++) {
    const names = ['x', 'y', 'z']
    const [all, some] = await Promise.all([
      one.acquire(request({ resources: names, owner: `all${round}` })),
      two.acquire(request({ resources: ['z'], owner: `z${round}` })),
    ])
    const owners = (await leasesOf(two)).map(({ owner }) => owner)
    const expected = all.kind === 'granted' ? names.map(() => `all${round}`) : [`z${round}`]
    expect(owners).toEqual(expected)
    expect([all.kind, some.kind].sort()).toEqual(['granted', 'refused'])
    await one.release({ ...request({ resources: names, owner: `all${round}` }), token: 0n })
    await one.release({ ...request({ resources: ['z'], owner: `z${round}` }), token: 0n })
  }
  await server.sql('SET GLOBAL sql_mode = DEFAULT')
})

test('an acquire whose answer is lost is undone', async () => {
  await using proxy = await startProxy(server.port)
  const pool = createPool({ ...addressOf(server), port: proxy.port })
  const engine = mariadb(pool, { requestTimeout: 1000 })
  await engine.init!()
  for (const fault of [() => proxy.cutOnNextReply('INSERT'), () => proxy.delay(1200, 'replies')]) {
    const asked = request()
    const isHeld = `SELECT COUNT(*) FROM ringfence_leases WHERE resource = '${asked.resources[0]}' AND owner IS NOT NULL`
    fault()
    await expect(engine.acquire(asked)).rejects.toMatchObject({ transient: true })
    proxy.delay(0)
    await until(async () => (await server.sql(isHeld)) === '0', { what: 'a grant that was undone' })
  }
  await engine.close()
  await pool.end()
})

test('an adoption whose answer is lost leaves the lease to its holder', async () => {
  await using proxy = await startProxy(server.port)
  const adopter = open({ requestTimeout: 1000 }, openPool({ port: proxy.port }))
  const lose = (): void => proxy.cutOnNextReply('token = token + 1, owner')
  await staysWithItsHolder({ holder: open(), adopter, lose, heal: () => undefined })
  expect(proxy.lostReplies).toBe(2)
})

test('a pool of mysql2 goes on after a restart of the server, and the lease is still there', async () => {
  await using own = await startMariadb()
  const pool = createPool(addressOf(own))
  const engine = mariadb(pool)
  const lease = await grant(engine, { ttlMs: 60_000 })
  await own.kill()
  expect(await engine.extend([lease])).toMatchObject([{ kind: 'unknown' }])
  await own.restart()
  await until(async () => (await engine.extend([lease]))[0]!.kind === 'held', { what: 'a renewal' })
  await engine.close()
  await pool.end()
})

test('a waiter gets in after a release by another process, long before the lease would have ended', async () => {
  const sent: string[] = []
  const pool = openPool()
  const client = {
    query: (sql: string) => {
      sent.push(sql)
      return pool.query(sql)
    },
  }
  const [one, two] = [createLocks(open()), createLocks(mariadb(client))]
  const held = await one.acquire('look', { ttl: '10m' })
  const waiting = two.acquire('look', { wait: '20s' })
  // Attempts write, so somebody who waits reads in between.
  const reads = (): number => sent.filter((sql) => sql.startsWith('SELECT')).length
  await until(() => reads() >= 3, { what: 'looks' })
  await held.release()
  await using lease = await waiting
  expect(lease.token).toBeGreaterThan(held.token)
  await two.close()
})

test('a counter that is ahead of the clock is still followed by a greater one, also of several', async () => {
  const engine = open()
  const ahead = await grant(engine, { resources: ['ahead'] })
  await engine.release(ahead)
  await server.sql('UPDATE ringfence_leases SET token = 8000000000000000')
  expect((await grant(engine, { resources: ['ahead', 'other'] })).token).toBe(8_000_000_000_000_001n)
})

test('leases that are renewed by one statement each get their own ttl', async () => {
  const engine = open()
  const ttls = [5000, 60_000, 5000, 600_000]
  const leases = await Promise.all(ttls.map((_, index) => grant(engine, { resources: [`ttl ${index}`], ttlMs: 1000 })))
  await engine.extend(leases.map((lease, index) => ({ ...lease, ttlMs: ttls[index]! })))
  for (const [index, ttlMs] of ttls.entries()) {
    const [{ remainingMs } = {}] = await leasesOf(engine, `ttl ${index}`)
    expect(remainingMs).toBeGreaterThan(ttlMs * 0.5)
    expect(remainingMs).toBeLessThanOrEqual(ttlMs)
  }
})

test('more leases than fit into one statement are renewed by several', async () => {
  const engine = open()
  const long = 'x'.repeat(990)
  const names = Array.from({ length: 600 }, (_, index) => `${long} ${index}`)
  const leases = await Promise.all(
    [0, 200, 400].map((from) => grant(engine, { resources: names.slice(from, from + 200) })),
  )
  await engine.release(leases[1]!)
  expect(await engine.extend(leases)).toEqual([{ kind: 'held' }, { kind: 'lost' }, { kind: 'held' }])
})

test('an owner that asks again for what it has gets the same token, and the whole ttl again', async () => {
  const engine = open()
  for (const resources of [['again'], ['again 1', 'again 2']]) {
    const asked = request({ resources, ttlMs: 5000 })
    const [first, second] = [await engine.acquire(asked), await engine.acquire({ ...asked, ttlMs: 60_000 })]
    expect(second).toEqual(first)
    for (const { remainingMs } of await leasesOf(engine, resources[0])) expect(remainingMs).toBeGreaterThan(50_000)
  }
})

test('a pool of mysql2 with callbacks, and any object with query(sql), will do', async () => {
  const callbacks = createMysql2CallbackPool(addressOf(server))
  const pool = openPool()
  for (const client of [callbacks, { query: (sql: string) => pool.query(sql) }]) {
    const engine = mariadb(client)
    const lease = await grant(engine)
    expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
    expect(await engine.release(lease)).toMatchObject({ ours: true })
    await engine.close()
  }
  await callbacks.promise().end()
})

test('a client of mariadb with callbacks is refused, with a word of what to import', async () => {
  const pool = createCallbackPool(addressOf(server))
  const engine = mariadb(pool)
  const message = expect.stringContaining("import 'mariadb' or 'mysql2/promise'") as string
  await expect(engine.acquire(request())).rejects.toMatchObject({ transient: false, message })
  await engine.close()
  await new Promise<void>((resolve) => pool.end(() => resolve()))
})

test('a client that is none, one whose answers are no rows, and bad options are named', async () => {
  const client = { query: async () => [] }
  expect(() => mariadb(undefined as never)).toThrow(
    /^client: expected a pool or connection of mariadb or mysql2.* got undefined/,
  )
  expect(() => mariadb({} as never)).toThrow('got an object')
  expect(() => mariadb(client, { tabel: 'x' } as never)).toThrow(
    "options: expected table, createTable, requestTimeout, drift, clock, random, got 'tabel'",
  )
  expect(() => mariadb(client, { table: 'x`y' })).toThrow('table: expected a name')
  expect(() => mariadb(client, { drift: 1 })).toThrow('drift: expected a part of the ttl')
  expect(() => mariadbSchema('a.b.c')).toThrow('table: expected a name')
  for (const answer of [undefined, 42, [{}], {}]) {
    const engine = mariadb({ query: async () => answer })
    await expect(engine.acquire(request())).rejects.toMatchObject({ code: 'ENGINE', transient: false })
    await engine.close()
  }
})

test('the longest owner fits: a label and a note of 200 characters of three bytes each', async () => {
  const locks = createLocks(open(), { label: '漢'.repeat(200), note: '字'.repeat(200) })
  const lease = await locks.acquire('a')
  await lease.extend()
  expect((await locks.status('a'))?.holders).toMatchObject([{ owner: lease.owner, note: '字'.repeat(200) }])
  expect(await lease.release()).toBe(true)
})

import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { postgres, postgresSchema, type PostgresOptions } from '../../../src/engines/postgres/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { Home } from '../../../harness/command.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { exercised, pageLines } from '../../operating/least-rights.ts'
import { grant, leasesOf, request } from '../shared/sql/requests.ts'
import { openPool } from './clients.ts'

let server: PostgresServer
const opened: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  server = await startPostgres()
})

afterAll(() => server.stop())

afterEach(async () => {
  for (const close of opened.splice(0)) await close()
  await server.sql('DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT CREATE, USAGE ON SCHEMA public TO public')
})

function open(options: PostgresOptions = {}, user = 'postgres'): Engine {
  const pool = openPool({ host: server.host, port: server.port, database: server.database, user })
  const engine = postgres(pool, options)
  opened.push(
    () => engine.close(),
    () => pool.end(),
  )
  return engine
}

test('the table is created by the first attempt, and by many first attempts at once', async () => {
  const engines = Array.from({ length: 10 }, () => open())
  const outcomes = await Promise.all(engines.map((engine) => engine.acquire(request())))
  expect(outcomes.map(({ kind }) => kind)).toEqual(engines.map(() => 'granted'))
})

test('init creates it once, says so, and many at once do no harm', async () => {
  const engines = Array.from({ length: 10 }, () => open({ table: 'Locks$1' }))
  const said = (await Promise.all(engines.map((engine) => engine.init!()))).flat()
  const created = said.filter((line) => line.startsWith('created the table:\nCREATE TABLE IF NOT EXISTS "Locks$1"'))
  expect(created.length).toBeGreaterThan(0)
  expect(said.filter((line) => line === 'the table is there')).toHaveLength(10 - created.length)
  await grant(engines[0]!)
  expect(await server.sql('SELECT count(*) FROM "Locks$1"')).toBe('1')
})

test('looking, extending and releasing where there is no table find nothing, and create nothing', async () => {
  const engine = open()
  const lease = { ...request(), token: 1n }
  expect(await engine.extend([lease])).toEqual([{ kind: 'lost' }])
  expect(await engine.release(lease)).toEqual({ ours: false, awaited: 0 })
  expect(await leasesOf(engine)).toEqual([])
  expect(await server.sql(`SELECT to_regclass('ringfence_leases') IS NULL`)).toBe('t')
})

test('a role that may not create tables is told the statement, and not to try again', async () => {
  await server.sql('CREATE ROLE guest LOGIN; REVOKE CREATE ON SCHEMA public FROM public')
  const engine = open({}, 'guest')
  const failure = { code: 'ENGINE', transient: false, message: expect.stringContaining(postgresSchema()) as string }
  await expect(engine.acquire(request())).rejects.toMatchObject(failure)
  await expect(engine.init!()).rejects.toMatchObject(failure)
  // With the table made by someone else, it needs no more than this.
  await server.sql(`${postgresSchema()} GRANT SELECT, INSERT, UPDATE ON ringfence_leases TO guest`)
  const lease = await grant(engine)
  expect(await engine.release(lease)).toMatchObject({ ours: true })
  expect(await engine.init!()).toEqual(['the table is there'])
  await server.sql('REVOKE UPDATE ON ringfence_leases FROM guest')
  await expect(engine.acquire(request())).rejects.toMatchObject({ transient: false })
  await server.sql('DROP OWNED BY guest; DROP ROLE guest')
})

test('the users of docs/operating/databases.md: one makes and changes the table, the other has all that programs need', async () => {
  await server.sql(pageLines('postgres.sql'))
  const table = 'locks.leases'
  const admin = open({ table })
  await expect(open({ table }, 'app').init!()).rejects.toMatchObject({ transient: false })
  expect(await open({ table }, 'locks_init').init!()).toEqual([`created the table:\n${postgresSchema(table)}`])
  expect(await exercised(() => open({ table }, 'app'), admin)).toEqual([])
  await server.sql(`ALTER TABLE ${table} DROP COLUMN readers, DROP COLUMN wanted_until`)
  await expect(open({ table }, 'app').init!()).rejects.toMatchObject({ transient: false })
  expect(await open({ table }, 'locks_init').init!()).toEqual([expect.stringMatching(/^changed the table/)])
  // A store of runs, as the command line has it.
  await using home = new Home()
  const store = (user: string): { env: { RINGFENCE_STORE: string } } => ({
    env: {
      RINGFENCE_STORE: `postgres://${user}@${server.host}:${server.port}/${server.database}?table=locks.guard`,
    },
  })
  const once = ['run', '--once', 'nightly', '--', 'true']
  const unmade = await home.run(once, store('app:change-this'))
  expect(unmade.stderr).toMatch(/could not be recorded: .*denied[^]*next: .*DELETE.*`ringfence init --store URL`/)
  const { RINGFENCE_STORE: url } = store('locks_init').env
  const made = await home.run(['init', '--store', url, '--json'])
  expect(JSON.parse(made.stdout)).toMatchObject({
    did: [
      expect.stringContaining('"guard"'),
      expect.stringContaining('"guard_once"'),
      expect.stringContaining('"guard_runs"'),
    ] as string[],
  })
  const untrimmed = await home.run(once, store('app:change-this'))
  expect(untrimmed.stderr).toMatch(/^ringfence: the run is recorded, but old runs could not be deleted: .*\n {2}next: /)
  expect((await home.run(['runs', 'nightly'], store('app:change-this'))).stdout).toContain(' done ')
  await server.sql(pageLines('postgres-store.sql'))
  expect(await home.run(once, store('app:change-this'))).toMatchObject({ code: 0, stderr: '' })
  await server.sql('DROP OWNED BY app, locks_init CASCADE; DROP ROLE app, locks_init')
})

test('with createTable: false a missing table is an error that names the statement', async () => {
  const engine = open({ createTable: false })
  const message = expect.stringContaining(postgresSchema()) as string
  await expect(engine.acquire(request())).rejects.toMatchObject({ transient: false, message })
})

test('a table in a schema of its own, and some other table under our name', async () => {
  await server.sql('CREATE SCHEMA locking; CREATE TABLE other (a int)')
  await grant(open({ table: 'locking.leases' }))
  expect(await server.sql('SELECT count(*) FROM locking.leases')).toBe('1')
  await expect(open({ table: 'other' }).acquire(request())).rejects.toMatchObject({ transient: false })
  await expect(open({ table: 'nowhere.leases' }).acquire(request())).rejects.toMatchObject({ transient: false })
  await server.sql('DROP SCHEMA locking CASCADE')
})

test('tokens are numbers of 63 bits to the last digit', async () => {
  const engine = open()
  const lease = await grant(engine)
  await engine.release(lease)
  await server.sql('UPDATE ringfence_leases SET token = 9007199254740993')
  const next = await grant(engine, { resources: lease.resources })
  expect(next.token).toBe(9_007_199_254_740_994n)
  const [info] = await leasesOf(engine, lease.resources[0])
  expect(info?.token).toBe(9_007_199_254_740_994n)
})

test('tokens go on growing after a row, the whole table, or the last grants were lost', async () => {
  const engine = open()
  const lease = await grant(engine)
  await server.sql('DELETE FROM ringfence_leases')
  const second = await grant(engine, { resources: lease.resources })
  expect(second.token).toBeGreaterThan(lease.token)
  await server.sql('DROP TABLE ringfence_leases')
  const third = await grant(engine, { resources: lease.resources })
  expect(third.token).toBeGreaterThan(second.token)
  // As on a replica that took over without the last grants.
  await server.sql(`UPDATE ringfence_leases SET token = ${lease.token}, owner = NULL`)
  const fourth = await grant(engine, { resources: lease.resources })
  expect(fourth.token).toBeGreaterThan(third.token)
})

test('inspect tells how long a lease has been held, across pages', async () => {
  const engine = open()
  await grant(engine)
  await server.sql(`INSERT INTO ringfence_leases (resource, token, owner, acquired_at, expires_at)
    SELECT 'many:' || i, 1, 'someone', now() - interval '5 s', now() + interval '60 s' FROM generate_series(1, 1200) i`)
  const infos = await leasesOf(engine)
  expect(infos).toHaveLength(1201)
  expect(new Set(infos.map(({ resource }) => resource)).size).toBe(1201)
  const [info] = await leasesOf(engine, 'many:700')
  expect(info).toMatchObject({ owner: 'someone', token: 1n })
  expect(info!.heldMs).toBeGreaterThanOrEqual(5000)
})

test('a table of an earlier version is an error that names the statement, and init changes it', async () => {
  await server.sql(`${postgresSchema()} ALTER TABLE ringfence_leases DROP COLUMN readers, DROP COLUMN wanted_until`)
  const engine = open()
  const change =
    'ALTER TABLE "ringfence_leases" ADD COLUMN IF NOT EXISTS readers jsonb, ADD COLUMN IF NOT EXISTS wanted_until timestamptz;'
  const message = expect.stringContaining(change) as string
  await expect(engine.acquire(request())).rejects.toMatchObject({ transient: false, message })
  expect(await engine.init!()).toEqual([`changed the table:\n${change}`])
  expect(await engine.init!()).toEqual(['the table is there'])
  await grant(engine)
  await server.sql('CREATE TABLE other (a int)')
  expect(await open({ table: 'other' }).init!()).toEqual(['the table is there'])
  expect(await server.sql(`SELECT count(*) FROM pg_attribute WHERE attrelid = 'other'::regclass AND attnum > 0`)).toBe(
    '1',
  )
})

test('a release that nobody waits for tells nobody', async () => {
  const pool = openPool({ connectionString: server.url })
  const heard: string[] = []
  const ear = await pool.connect()
  ear.on('notification', ({ payload }) => heard.push(payload ?? ''))
  await ear.query('LISTEN ringfence_leases')
  const engine = open()
  const alone = await grant(engine)
  expect(await engine.release(alone)).toEqual({ ours: true, awaited: 0 })
  const awaited = await grant(engine)
  await server.sql('UPDATE ringfence_leases SET awaited = true WHERE owner IS NOT NULL')
  expect(await engine.release(awaited)).toEqual({ ours: true, awaited: 1 })
  await expect.poll(() => heard).toEqual([expect.stringMatching(` ${awaited.resources[0]}$`)])
  ear.release(true)
  await pool.end()
})

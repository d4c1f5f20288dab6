import type { Client, Pool } from 'pg'
import postgresJs from 'postgres'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { postgres, postgresAdvisory } from '../../../src/engines/postgres/index.ts'
import { createLocks } from '../../../src/locks.ts'
import { Gate } from '../../../harness/scripted-engine.ts'
import { startPgbouncer } from '../../../harness/servers/pgbouncer.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { until } from '../../../harness/until.ts'
import { grant, leasesOf, request } from '../shared/sql/requests.ts'
import { connectedClient, CONNECTIONS, openPool } from './clients.ts'

const LOCKS = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`

let server: PostgresServer
let pool: Pool
const engines: Engine[] = []

beforeAll(async () => {
  server = await startPostgres()
  pool = openPool({ connectionString: server.url })
})

afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close()
  // Whatever the engines have opened is gone with them.
  await until(async () => (await server.sql(LOCKS)) === '0', { what: 'a server without advisory locks' })
})

afterAll(async () => {
  await pool.end()
  await server.stop()
})

function open(connect = (): Promise<Client> => connectedClient(server.url)): Engine {
  const engine = postgresAdvisory(connect)
  engines.push(engine)
  return engine
}

function openTable(): Engine {
  const engine = postgres(pool)
  engines.push(engine)
  return engine
}

/** The process of the session that has a lease. */
async function pidOf(resource: string): Promise<string> {
  return server.sql(`SELECT k.pid FROM pg_locks k JOIN ringfence_leases l ON l.resource = '${resource}'
    AND k.classid = (l.session >> 32)::oid AND k.objid = (l.session & 4294967295)::oid WHERE k.locktype = 'advisory'`)
}

test('a lease ends with its connection: another gets in at once, with a greater token', async () => {
  const clients: Client[] = []
  const one = open(async () => {
    const client = await connectedClient(server.url)
    clients.push(client)
    return client
  })
  const lease = await grant(one)
  const rival = openTable()
  expect(await rival.acquire(request({ resources: lease.resources }))).toMatchObject({ kind: 'refused' })
  await clients[0]!.end()
  await until(async () => (await pidOf(lease.resources[0]!)) === '', { what: 'the end of the session' })
  expect(await leasesOf(rival, lease.resources[0])).toEqual([])
  const next = await grant(rival, { resources: lease.resources })
  expect(next.token).toBeGreaterThan(lease.token)
  expect(await one.extend([lease])).toEqual([{ kind: 'lost' }])
})

test('a reader ends with its connection: a writer gets in at once, if no other reader is there', async () => {
  const clients: Client[] = []
  const connect = async (): Promise<Client> => {
    const client = await connectedClient(server.url)
    clients.push(client)
    return client
  }
  const [one, two] = [open(connect), open()]
  const rival = openTable()
  const dies = await grant(one, { shared: true })
  const { resources } = dies
  const lives = await grant(two, { resources, shared: true })
  const stays = await grant(rival, { resources, shared: true })
  const owners = async (): Promise<string[]> => (await leasesOf(rival, resources[0])).map(({ owner }) => owner)
  expect((await owners()).sort()).toEqual([dies.owner, lives.owner, stays.owner].sort())
  await clients[0]!.end()
  await expect.poll(async () => (await owners()).sort()).toEqual([lives.owner, stays.owner].sort())
  // In a session, and by time alone.
  for (const [engine, reader] of [
    [two, lives],
    [rival, stays],
  ] as const) {
    // prettier-ignore
    expect(await rival.acquire(request({ resources }))).toMatchObject({ kind: 'refused' })
    expect(await engine.extend([reader])).toEqual([{ kind: 'held' }])
    expect(await engine.release(reader)).toMatchObject({ ours: true })
  }
  expect(await owners()).toEqual([])
  const writer = await grant(rival, { resources })
  expect(writer.token).toBeGreaterThan(dies.token)
  expect(await one.extend([dies])).toEqual([{ kind: 'lost' }])
})

test('a reader takes over from a writer whose connection has ended', async () => {
  const clients: Client[] = []
  const one = open(async () => {
    const client = await connectedClient(server.url)
    clients.push(client)
    return client
  })
  const rival = openTable()
  for (const resources of [['w:1'], ['w:2', 'w:3']]) {
    const writer = await grant(one, { resources })
    expect(await rival.acquire(request({ resources, shared: true }))).toMatchObject({
      kind: 'refused',
      holder: writer.owner,
    })
    await clients.at(-1)!.end()
    await until(async () => (await leasesOf(rival, resources[0])).length === 0, { what: 'the end of the session' })
    const reader = await grant(rival, { resources, shared: true })
    expect(reader.token).toBeGreaterThan(writer.token)
    expect(await one.extend([writer])).toEqual([{ kind: 'lost' }])
  }
})

test('a reader that was left to its time outlives its connection', async () => {
  const one = open()
  const reader = await grant(one, { shared: true })
  const { resources } = reader
  expect(await one.leave!({ ...reader, ttlMs: 20_000 })).toEqual({ kind: 'held' })
  await one.close()
  const rival = openTable()
  expect(await rival.acquire(request({ resources }))).toMatchObject({ kind: 'refused', holder: reader.owner })
  await grant(rival, { resources, shared: true })
})

test('several resources whose session has ended are taken together with free ones', async () => {
  const clients: Client[] = []
  const one = open(async () => {
    const client = await connectedClient(server.url)
    clients.push(client)
    return client
  })
  const lease = await grant(one, { resources: ['s:1', 's:2'] })
  await clients[0]!.end()
  await until(async () => (await pidOf('s:1')) === '', { what: 'the end of the session' })
  const next = await grant(openTable(), { resources: ['s:0', 's:1', 's:2'] })
  expect(next.token).toBeGreaterThan(lease.token)
})

test('after its connection was lost a session goes on with the next one, if nobody was faster', async () => {
  const engine = open()
  const lease = await grant(engine)
  const pid = await pidOf(lease.resources[0]!)
  await server.sql(`SELECT pg_terminate_backend(${pid})`)
  await until(async () => (await engine.extend([lease]))[0]!.kind === 'held', { what: 'a renewal' })
  expect(await pidOf(lease.resources[0]!)).not.toBe(pid)
  const refusal = await openTable().acquire(request({ resources: lease.resources }))
  expect(refusal).toMatchObject({ kind: 'refused', holder: lease.owner })
})

test('a holder whose connection was ended hears of the rival who came in, long before its renewal is due', async () => {
  // It can't connect again at once, so that the rival is faster.
  let isFirst = true
  const gate = new Gate()
  const engine = open(async () => {
    if (!isFirst) await gate.opened
    isFirst = false
    return connectedClient(server.url)
  })
  const locks = createLocks(engine, { ttl: '60s' })
  const lease = await locks.acquire('doubt')
  await server.sql(`SELECT pg_terminate_backend(${await pidOf('doubt')})`)
  await until(async () => (await pidOf('doubt')) === '', { what: 'the end of the session' })
  const rival = await grant(openTable(), { resources: ['doubt'] })
  gate.open()
  await until(() => lease.signal.aborted, { what: 'the loss' })
  expect(lease.signal.reason).toMatchObject({ reason: 'stolen' })
  expect(rival.token).toBeGreaterThan(lease.token)
})

test('both kinds of leases on one table exclude each other, in one process too', async () => {
  const [bound, table] = [open(), openTable()]
  const one = await grant(bound)
  expect((await table.acquire(request({ resources: one.resources }))).kind).toBe('refused')
  expect((await bound.acquire(request({ resources: one.resources }))).kind).toBe('refused')
  const two = await grant(table)
  expect((await bound.acquire(request({ resources: two.resources }))).kind).toBe('refused')
  expect(bound.identity).toBe(table.identity)
})

test('anyone can end a lease by its owner, and its session hears at the next renewal', async () => {
  const engine = open()
  const lease = await grant(engine)
  expect(await openTable().release({ ...lease, token: 0n })).toMatchObject({ ours: true })
  expect(await engine.extend([lease])).toEqual([{ kind: 'lost' }])
})

test('a lease that is left alone outlives its session, and a job is kept for its time', async () => {
  const engine = postgresAdvisory(() => connectedClient(server.url))
  const locks = createLocks(engine)
  const outcome = await locks.once('job', { atLeast: '20s', atMost: '30s' }, async () => 'done')
  expect(outcome).toEqual({ ran: true, value: 'done' })
  await locks.close()
  await expect.poll(() => server.sql(LOCKS)).toBe('0')
  expect(await openTable().acquire(request({ resources: ['job'] }))).toMatchObject({ kind: 'refused' })
})

test('a wait ends soon after the session of the holder, which tells nobody', async () => {
  const clients: Client[] = []
  const one = open(async () => {
    const client = await connectedClient(server.url)
    clients.push(client)
    return client
  })
  const held = await grant(one)
  const locks = createLocks(postgres(pool))
  const waiting = locks.acquire(held.resources, { wait: '20s' })
  await until(
    async () =>
      (await server.sql(`SELECT awaited FROM ringfence_leases WHERE resource = '${held.resources[0]}'`)) === 't',
    {
      what: 'a waiter',
    },
  )
  const endedMs = performance.now()
  await clients[0]!.end()
  await using lease = await waiting
  expect(lease.held).toBe(true)
  // Not when its ttl of 30 s is over.
  expect(performance.now() - endedMs).toBeLessThan(15_000)
  await locks.close()
})

describe('behind a transaction pooler', () => {
  test.each([1, 8])(
    'with %d connections to the server it is refused for good, by every kind of connection',
    async (poolSize) => {
      await using pooler = await startPgbouncer(server.port, { mode: 'transaction', poolSize })
      for (const make of Object.values(CONNECTIONS)) {
        const source = make(pooler.url)
        const engine = postgresAdvisory(() => source.connect())
        await expect(engine.acquire(request())).rejects.toMatchObject({
          transient: false,
          message: expect.stringContaining('pooler') as string,
        })
        await engine.close()
        await source.end()
      }
    },
  )

  test('a pooler in session mode is no hindrance', async () => {
    await using pooler = await startPgbouncer(server.port, { mode: 'session' })
    const engine = postgresAdvisory(() => connectedClient(pooler.url))
    const lease = await grant(engine)
    expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
    await engine.close()
  })
})

test('the connections of a pool are given back without a lock', async () => {
  const sql = postgresJs(server.url, { max: 1, onnotice: () => undefined })
  const two = openPool({ connectionString: server.url, max: 1 })
  for (const connect of [() => sql.reserve(), () => two.connect()]) {
    const engine = postgresAdvisory(connect)
    await grant(engine)
    await engine.close()
  }
  expect(await server.sql(LOCKS)).toBe('0')
  expect((await two.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
  expect([...(await sql`SELECT 1 AS one`)]).toEqual([{ one: 1 }])
  await sql.end()
  await two.end()
})

test('a connection that can not be opened is a failure that may pass', async () => {
  let isUp = false
  const engine = open(async () => {
    if (!isUp) throw new Error('not yet')
    return connectedClient(server.url)
  })
  await expect(engine.acquire(request())).rejects.toMatchObject({ transient: true })
  isUp = true
  await grant(engine)
})

test('what connect gives is looked at', async () => {
  for (const given of [pool, {}, undefined]) {
    const engine = postgresAdvisory(async () => given as never)
    await expect(engine.acquire(request())).rejects.toMatchObject({ code: 'ENGINE', transient: false })
    await engine.close()
  }
  expect(() => postgresAdvisory(pool as never)).toThrow('connect: expected a function that resolves')
})

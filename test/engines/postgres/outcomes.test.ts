import { Client } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Engine, LeaseRequest } from '../../../src/engine.ts'
import { postgres, postgresAdvisory } from '../../../src/engines/postgres/index.ts'
import { createLocks } from '../../../src/locks.ts'
import { startProxy, type Proxy } from '../../../harness/faults/proxy.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { until } from '../../../harness/until.ts'
import { staysWithItsHolder } from '../lost-adoptions.ts'
import { grant, request } from '../shared/sql/requests.ts'
import { openPool } from './clients.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startPostgres()
  const pool = openPool({ connectionString: server.url })
  const engine = postgres(pool)
  await engine.init!()
  await engine.close()
  await pool.end()
})

afterAll(() => server.stop())

async function behindProxy(work: (engine: Engine, proxy: Proxy) => Promise<void>): Promise<void> {
  await using proxy = await startProxy(server.port)
  const pool = openPool({ host: '127.0.0.1', port: proxy.port, user: 'postgres', database: 'postgres' })
  const engine = postgres(pool, { requestTimeout: 800 })
  try {
    await grant(engine)
    await work(engine, proxy)
  } finally {
    proxy.reset()
    await engine.close()
    await pool.end()
  }
}

/** Its leases end with its connection. */
function openSession(): Engine {
  return postgresAdvisory(async () => {
    const client = new Client({ connectionString: server.url })
    await client.connect()
    return client
  })
}

async function ownerOf({ resources }: Pick<LeaseRequest, 'resources'>): Promise<string> {
  return server.sql(`SELECT coalesce(owner, 'nobody') FROM ringfence_leases WHERE resource = '${resources[0]}'`)
}

test('an acquire whose answer is lost is undone', async () => {
  await behindProxy(async (engine, proxy) => {
    const asked = request()
    proxy.dropReplies(true)
    await expect(engine.acquire(asked)).rejects.toMatchObject({ code: 'ENGINE', transient: true })
    expect(await ownerOf(asked)).toBe(asked.owner)
    proxy.dropReplies(false)
    await until(async () => (await ownerOf(asked)) === 'nobody', { what: 'an undone grant' })
  })
})

test('an acquire whose connection breaks before the answer is undone', async () => {
  await behindProxy(async (engine, proxy) => {
    const asked = request()
    proxy.cutOnNextReply('INSERT')
    await expect(engine.acquire(asked)).rejects.toMatchObject({ transient: true })
    expect(proxy.lostReplies).toBe(1)
    await until(async () => (await ownerOf(asked)) === 'nobody', { what: 'an undone grant' })
  })
})

test('an acquire that lands long after it was given up is undone', async () => {
  await behindProxy(async (engine, proxy) => {
    const asked = request()
    // One row lock holds it up on the server, and lets the first release pass as a no-op.
    const pool = openPool({ connectionString: server.url })
    const blocker = await pool.connect()
    await blocker.query('BEGIN')
    await blocker.query(
      `INSERT INTO ringfence_leases (resource, token, acquired_at, expires_at) VALUES ($1, 1, now(), now())`,
      [asked.resources[0]],
    )
    await expect(engine.acquire(asked)).rejects.toMatchObject({ transient: true })
    const waiting = `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT%'`
    expect(await server.sql(waiting)).toBe('1')
    await blocker.query('COMMIT')
    const landed = `SELECT token > 1 AND owner IS NULL FROM ringfence_leases WHERE resource = '${asked.resources[0]}'`
    await until(async () => (await server.sql(landed)) === 't', { what: 'a grant that landed and was undone' })
    blocker.release()
    await pool.end()
    expect(proxy.connections).toBeGreaterThan(0)
  })
})

test('a hand-over whose answer is lost leaves it to nobody', async () => {
  await behindProxy(async (engine, proxy) => {
    const lease = await grant(engine)
    proxy.cutOnNextReply('moved')
    await expect(engine.handOver!(lease, request({ resources: lease.resources }))).rejects.toMatchObject({
      transient: true,
    })
    await until(async () => (await ownerOf(lease)) === 'nobody', { what: 'a free resource' })
  })
})

test.each([
  ['answer', (proxy: Proxy): void => proxy.cutOnNextReply('moved')],
  ['request', (proxy: Proxy): void => proxy.dropRequests('moved')],
])('an adoption whose %s is lost leaves the lease to its holder', async (_what, fault) => {
  const pool = openPool({ connectionString: server.url })
  const holder = postgres(pool)
  await behindProxy(async (adopter, proxy) => {
    const [lose, heal] = [(): void => fault(proxy), (): void => proxy.dropRequests(false)]
    await staysWithItsHolder({ holder, adopter, lose, heal })
  })
  await holder.close()
  await pool.end()
})

test('what an adopter gives back does not end with its session', async () => {
  const name = 'ringfence_session'
  const [holding, adopting] = [createLocks(openSession()), createLocks(openSession())]
  const lease = await holding.acquire(name, { ttl: '60s' })
  await (await adopting.acquire('warm')).release()
  const failing = adopting.adopt(lease.toJSON())
  const closing = adopting.close()
  await expect(failing).rejects.toThrow('these locks are closed')
  await closing
  expect(await holding.tryAcquire(name)).toBeNull()
  expect(lease.held).toBe(true)
  await lease.extend()
  await holding.close()
})

test('an extension without an answer is unknown, not lost', async () => {
  await behindProxy(async (engine, proxy) => {
    const lease = await grant(engine)
    proxy.dropReplies(true)
    expect(await engine.extend([lease])).toMatchObject([{ kind: 'unknown' }])
    proxy.dropReplies(false)
  })
})

test('refused connections are failures that may pass, and leave nothing to be undone', async () => {
  await behindProxy(async (engine, proxy) => {
    await proxy.refuse(true)
    proxy.reset()
    await expect(engine.acquire(request())).rejects.toMatchObject({ transient: true })
    await expect(engine.release({ ...request(), token: 1n })).rejects.toMatchObject({ transient: true })
    await proxy.refuse(false)
    await grant(engine)
  })
})

test('a lease of several resources is extended and handed over all or not at all', async () => {
  await behindProxy(async (engine) => {
    const lease = await grant(engine, { resources: ['all:1', 'all:2'] })
    // Someone ends one of them by hand.
    await server.sql(`UPDATE ringfence_leases SET owner = NULL WHERE resource = 'all:2'`)
    expect(await engine.extend([lease])).toEqual([{ kind: 'lost' }])
    const next = request({ resources: lease.resources })
    expect(await engine.handOver!(lease, next)).toEqual({ kind: 'refused', reason: 'held' })
    expect(await engine.release(lease)).toMatchObject({ ours: false })
    expect(
      await server.sql(`SELECT count(*) FROM ringfence_leases WHERE resource LIKE 'all:%' AND owner IS NULL`),
    ).toBe('2')
  })
})

test('a ttl with a fraction is as good as a whole one', async () => {
  await behindProxy(async (engine) => {
    const lease = await grant(engine, { ttlMs: 20_000.5 })
    expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
    const next = request({ resources: lease.resources, ttlMs: 20_000.5 })
    expect(await engine.handOver!(lease, next)).toMatchObject({ kind: 'granted' })
    await grant(engine, { ttlMs: 20_000.5, resources: ['half:1', 'half:2'] })
  })
})

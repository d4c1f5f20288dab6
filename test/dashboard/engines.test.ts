import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { createPool } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dashboard, type AuditEntry, type DashboardOptions } from '../../src/dashboard/index.ts'
import type { History } from '../../src/dashboard/protocol.ts'
import { file } from '../../src/engines/file/index.ts'
import { mariadb } from '../../src/engines/mariadb/index.ts'
import { postgres } from '../../src/engines/postgres/index.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Engine } from '../../src/index.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../harness/servers/redis.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'
import { ask, post, Viewer } from './viewer.ts'

const WRITER: DashboardOptions = { auth: () => ({ role: 'write', name: 'ada' }), every: 200 }

interface Served extends AsyncDisposable {
  engine(): Engine
}

const kinds: Record<string, { nodes: number; start: () => Promise<Served> }> = {
  redis: { nodes: 1, start: () => onRedis(1) },
  redlock: { nodes: 3, start: () => onRedis(3) },
  file: {
    nodes: 1,
    start: async () => {
      const folder = createFolder('dashboard')
      return { engine: () => file(`${folder}/locks.db`), [Symbol.asyncDispose]: async () => removeFolder(folder) }
    },
  },
  postgres: {
    nodes: 1,
    start: async () => {
      const server = await startPostgres()
      const pool = new Pool({ connectionString: server.url }).on('error', () => undefined)
      const stop = (): Promise<void> => pool.end().then(() => server.stop())
      return { engine: () => postgres(pool), [Symbol.asyncDispose]: stop }
    },
  },
  mariadb: {
    nodes: 1,
    start: async () => {
      const server = await startMariadb()
      const pool = createPool(server.url)
      const stop = (): Promise<void> => pool.end().then(() => server.stop())
      return { engine: () => mariadb(pool), [Symbol.asyncDispose]: stop }
    },
  },
}

async function onRedis(count: number): Promise<Served> {
  const servers = await startRedisNodes(count)
  const clients = servers.nodes.map(({ port }) => new Redis({ port }).on('error', () => undefined))
  return {
    engine: () => (count === 1 ? redis(clients[0]) : redlock(clients)),
    async [Symbol.asyncDispose]() {
      for (const client of clients) client.disconnect()
      await servers.stop()
    },
  }
}

describe.each(Object.entries(kinds))('on %s', (_name, { nodes, start }) => {
  let served: Served
  let engine: Engine
  beforeAll(async () => {
    served = await start()
    engine = served.engine()
  })
  afterAll(async () => {
    await engine.close()
    await served[Symbol.asyncDispose]()
  })

  test('a page sees leases come, be renewed, change hands and go, and its history tells it', async () => {
    const locks = createLocks(served.engine(), { ttl: '6s', label: 'worker-1', note: 'invoice 42' })
    await using early = await locks.acquire('early')
    await using page = dashboard(engine, WRITER)
    await using viewer = await Viewer.open(page)
    const shown = await viewer.sees('early')
    const row = { owner: early.owner, label: 'worker-1', note: 'invoice 42', token: String(early.token) }
    expect(shown).toMatchObject(row)
    expect(shown.endsAtMs! - performance.now()).toBeLessThanOrEqual(6000)
    expect(shown.ttlMs).toBeGreaterThan(1000)
    const first = await locks.acquire('passed on')
    await viewer.sees('passed on', ({ token }) => token === String(first.token))
    const [second] = await Promise.all([locks.acquire('passed on'), first.release()])
    await viewer.sees('passed on', ({ token }) => token === String(second.token))
    // Renewed by its keeper: its end is later than any that the first one had.
    await viewer.sees('early', ({ endsAtMs }) => endsAtMs! > shown.endsAtMs! + 500)
    await second.release()
    await viewer.misses('passed on')
    const response = await ask(page, `/history?resource=${encodeURIComponent('passed on')}`)
    const { entries } = (await response.json()) as History
    const [last, ...rest] = entries
    expect(last).toMatchObject({ type: 'released', token: String(second.token), label: 'worker-1' })
    expect(rest.map(({ token }) => token)).toContain(String(first.token))
    expect(rest.at(-1)).toMatchObject({ type: 'granted', token: String(first.token) })
    await locks.close()
  })

  test('a forced release ends that lease and no newer one; an extension never shortens it', async () => {
    const audit: AuditEntry[] = []
    const locks = createLocks(served.engine(), { ttl: '20s', renew: false })
    await using page = dashboard(engine, { ...WRITER, onAudit: (entry) => audit.push(entry) })
    await using viewer = await Viewer.open(page)
    const lease = await locks.acquire('mine')
    const token = String(lease.token)
    await viewer.sees('mine')
    const shorter = await post(page, '/extend', { resource: 'mine', token, ttlMs: 1000 })
    expect([shorter.status, await shorter.json()]).toMatchObject([409, { status: 409 }])
    const longer = await post(page, '/extend', { resource: 'mine', token, ttlMs: 60_000 })
    expect([longer.status, await longer.json()]).toEqual([200, { held: true }])
    await viewer.sees('mine', ({ endsInMs }) => endsInMs! > 50_000)
    const stale = await post(page, '/release', { resource: 'mine', token: String(lease.token - 1n) })
    expect(await stale.json()).toEqual({ ours: false })
    expect(viewer.rows.has('mine')).toBe(true)
    const done = await post(page, '/release', { resource: 'mine', token })
    expect([done.status, await done.json()]).toEqual([200, { ours: true }])
    await viewer.misses('mine')
    const next = await locks.acquire('mine', { wait: 0 })
    expect(await (await post(page, '/release', { resource: 'mine', token })).json()).toEqual({ ours: false })
    await viewer.sees('mine', (row) => row.token === String(next.token))
    const about = { who: 'ada', role: 'write', remoteAddress: '127.0.0.1', resource: 'mine', owner: lease.owner, token }
    expect(audit.slice(0, 4)).toMatchObject([
      { action: 'extend', outcome: 'refused', ttlMs: 1000, ...about },
      { action: 'extend', outcome: 'done', ttlMs: 60_000, ...about },
      { action: 'release', outcome: 'not held', token: String(lease.token - 1n) },
      { action: 'release', outcome: 'done', ...about },
    ])
    await locks.close()
  })

  test('the servers and the findings of the doctor are shown', async () => {
    await using page = dashboard(engine, WRITER)
    await using viewer = await Viewer.open(page)
    const probed = (await viewer.has('nodes')).nodes
    expect(probed).toHaveLength(nodes)
    for (const { roundTripMs, clockOffsetMs } of probed) {
      // Of a file it may be less than the hundredth of a millisecond that is shown.
      expect(roundTripMs).toBeGreaterThanOrEqual(0)
      expect(Math.abs(clockOffsetMs ?? 0)).toBeLessThan(100 + roundTripMs!)
    }
    expect((await viewer.has('findings')).findings.length).toBeGreaterThan(0)
  })
})

test('a node that sits out is shown as such', async () => {
  await using servers = await startRedisNodes(3)
  const clients = servers.nodes.map(({ port }) => new Redis({ port }).on('error', () => undefined))
  const engine = redlock(clients)
  await engine.init!()
  await servers.nodes[1]!.restart({ empty: true })
  await using page = dashboard(engine, WRITER)
  await using viewer = await Viewer.open(page)
  const { nodes } = await viewer.has('nodes')
  expect(nodes.map(({ sitsOutMs }) => sitsOutMs)).toEqual([undefined, 61_000, undefined])
  // Its time begins when a client wants its vote.
  expect(nodes[1]).toMatchObject({ sitsOutLater: true })
  await engine.acquire({ resources: ['order'], owner: 'someone', ttlMs: 10_000 })
  const runs = async (): Promise<boolean> => (await engine.probe!())[1]!.sitsOutLater === false
  await until(runs, { what: 'its time runs' })
  await engine.close()
  for (const client of clients) client.disconnect()
})

describe('one Redis', () => {
  let server: RedisServer
  let client: Redis
  beforeAll(async () => {
    server = await startRedis()
    client = new Redis({ port: server.port }).on('error', () => undefined)
  })
  afterAll(async () => {
    client.disconnect()
    await server.stop()
  })

  const scans = async (): Promise<number> =>
    Number(/cmdstat_scan:calls=(\d+)/.exec(await server.cli('INFO', 'commandstats'))?.[1] ?? 0)

  test('is looked through once for all pages, and hardly at all when none is open', async () => {
    await using engine = Object.assign(redis(client), { [Symbol.asyncDispose]: () => engine.close() })
    await using page = dashboard(engine, { auth: () => 'read', every: 200, whenIdle: '1h' })
    await until(() => page.counts.looks > 0, { what: 'a first look' })
    const viewers = await Promise.all(Array.from({ length: 20 }, () => Viewer.open(page)))
    const [before, looksBefore] = [await scans(), page.counts.looks]
    await until(() => page.counts.looks >= looksBefore + 5, { what: 'five looks' })
    // One command a look, since there are few keys; twenty pages looking for themselves would have made a hundred.
    expect((await scans()) - before).toBeLessThanOrEqual(page.counts.looks - looksBefore + 1)
    await Promise.all(viewers.map((viewer) => viewer[Symbol.asyncDispose]()))
    await until(() => page.counts.streams === 0, { what: 'no page open' })
    const [idle, looksIdle] = [await scans(), page.counts.looks]
    await new Promise((resolve) => setTimeout(resolve, 1000))
    expect(page.counts.looks - looksIdle).toBeLessThanOrEqual(1)
    expect((await scans()) - idle).toBeLessThanOrEqual(1)
  })

  test('that is gone is trouble, what was known stays, and the page recovers when it is back', async () => {
    await using engine = Object.assign(redis(client), { [Symbol.asyncDispose]: () => engine.close() })
    const locks = createLocks(redis(client))
    await locks.acquire('before')
    await using page = dashboard(engine, { auth: () => 'write', every: 100 })
    await using viewer = await Viewer.open(page)
    await viewer.sees('before')
    await server.kill()
    const { message } = await until(() => viewer.last('trouble'), { what: 'trouble', withinMs: 30_000 })
    expect(message).toEqual(expect.any(String))
    // What was known stays, and a page that comes now sees it too.
    await using late = await Viewer.open(page)
    await late.sees('before')
    expect(late.last('trouble')).toEqual({ message: expect.any(String) })
    const failed = await post(page, '/release', { resource: 'before', token: viewer.rows.get('before')!.token })
    expect([failed.status, failed.headers.get('retry-after')]).toEqual([503, '1'])
    await server.restart()
    await until(() => viewer.last('trouble')?.message === null, { what: 'no more trouble', withinMs: 60_000 })
    await viewer.misses('before')
    await locks.close()
  })
})

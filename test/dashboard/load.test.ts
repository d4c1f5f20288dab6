import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { dashboard } from '../../src/dashboard/index.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { createLocks, type Lease } from '../../src/index.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { Viewer } from './viewer.ts'

const PAGES = 50
const LEASES = 2000

/** The large form, with figures, is bench/dashboard.mjs. */
test('fifty pages and two thousand leases that are renewed: every page is right, and hears of news alone', async () => {
  await using server = await startRedis()
  const client = new Redis({ port: server.port })
  const engine = redis(client, { requestTimeout: '5s' })
  const locks = createLocks(engine, { ttl: '12s' })
  const leases: Lease[] = []
  while (leases.length < LEASES) {
    const names = Array.from({ length: 200 }, (_, index) => `r${leases.length + index}`)
    leases.push(...(await Promise.all(names.map((name) => locks.acquire(name)))))
  }
  await using page = dashboard(engine, { auth: () => 'read', every: 100 })
  const web = createServer(page.listener).listen(0, '127.0.0.1')
  await once(web, 'listening')
  const at = `http://127.0.0.1:${(web.address() as AddressInfo).port}`
  const viewers = await Promise.all(Array.from({ length: PAGES }, async () => new Viewer(await fetch(`${at}/events`))))
  const allSee = (what: string, isSeen: (viewer: Viewer) => boolean): Promise<unknown> =>
    until(() => viewers.every(isSeen), { what, withinMs: 50_000 })
  await allSee('all leases', ({ rows }) => rows.size === LEASES)
  const snapshotBytes = viewers[0]!.bytes
  const looks = page.counts.looks
  const renewedMs = Math.max(...[...viewers[0]!.rows.values()].map(({ endsAtMs }) => endsAtMs!))
  const marker = await locks.acquire('marker')
  await allSee('the new lease', ({ rows }) => rows.has('marker'))
  await marker.release()
  await Promise.all(leases.splice(0, 100).map((lease) => lease.release()))
  await allSee('the end of some', ({ rows }) => rows.size === LEASES - 100)
  await allSee('renewals', ({ rows }) => [...rows.values()].every(({ endsAtMs }) => endsAtMs! > renewedMs))
  // Renewed all the time, and none of them is the page's business twice: far less than a snapshot a look.
  const newsBytes = viewers[0]!.bytes - snapshotBytes
  expect(newsBytes).toBeLessThan(snapshotBytes * (page.counts.looks - looks) * 0.5)
  expect(viewers.filter(({ isOver }) => isOver)).toEqual([])
  expect(page.counts).toMatchObject({ streams: PAGES, leases: LEASES - 100 })
  await Promise.all(viewers.map((viewer) => viewer[Symbol.asyncDispose]()))
  await until(() => page.counts.streams === 0, { what: 'no stream is left' })
  web.closeAllConnections()
  web.close()
  await locks.close()
  client.disconnect()
}, 120_000)

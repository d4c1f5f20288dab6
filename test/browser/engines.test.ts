import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { MongoClient } from 'mongodb'
import { createPool } from 'mysql2/promise'
import * as driver from 'node-zookeeper-client'
import { describe, expect, test } from 'vitest'
import type { Engine } from '../../src/engine.ts'
import { consul } from '../../src/engines/consul/index.ts'
import { etcd } from '../../src/engines/etcd/index.ts'
import { file } from '../../src/engines/file/index.ts'
import { mariadb } from '../../src/engines/mariadb/index.ts'
import { mongodb } from '../../src/engines/mongodb/index.ts'
import { postgres } from '../../src/engines/postgres/index.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { zookeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks } from '../../src/locks.ts'
import { openPool } from '../engines/postgres/clients.ts'
import { startConsul } from '../../harness/servers/consul.ts'
import { startEtcd } from '../../harness/servers/etcd.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedis, startRedisNodes } from '../../harness/servers/redis.ts'
import { startZookeeper } from '../../harness/servers/zookeeper.ts'
import { createFolder } from '../../harness/temporary-folder.ts'
import { oneBrowser } from './browser.ts'
import { cell, focused, isLive, isRenewed, isTrue, row } from './page.ts'
import { outsideAtAnyWidth } from './readable.ts'
import { Site } from './site.ts'

/** Real servers, and a way to reach them as one of several processes would. */
interface Servers {
  engine(): Engine
  stop(): Promise<void>
}

interface Kind {
  start(): Promise<Servers>
  /** How many wait, as a page says it; its details name them. Not every engine knows. */
  readonly waiting: '1' | '–'
  /** Whether a look can see that a lease was renewed: Consul does not tell. */
  readonly isEndKnown?: boolean
  /** Whether its servers tell what their clocks say. */
  readonly isClockKnown?: boolean
}

const kinds: Record<string, Kind> = {
  redis: {
    waiting: '1',
    isClockKnown: true,
    async start() {
      const server = await startRedis()
      const client = new Redis(server.url)
      return { engine: () => redis(client), stop: () => (client.disconnect(), server.stop()) }
    },
  },
  redlock: {
    waiting: '1',
    isClockKnown: true,
    async start() {
      const group = await startRedisNodes(3)
      const clients = group.urls.map((url) => new Redis(url))
      return {
        engine: () => redlock(clients),
        stop: () => (clients.forEach((client) => client.disconnect()), group.stop()),
      }
    },
  },
  postgres: {
    waiting: '–',
    isClockKnown: true,
    async start() {
      const server = await startPostgres()
      const pool = openPool({ connectionString: server.url })
      return { engine: () => postgres(pool), stop: () => pool.end().then(() => server.stop()) }
    },
  },
  mariadb: {
    waiting: '–',
    isClockKnown: true,
    async start() {
      const server = await startMariadb()
      const pool = createPool(server.url)
      return { engine: () => mariadb(pool), stop: () => pool.end().then(() => server.stop()) }
    },
  },
  mongodb: {
    waiting: '–',
    isClockKnown: true,
    async start() {
      const server = await startMongodb()
      const client = await MongoClient.connect(server.url)
      return { engine: () => mongodb(client.db('locks')), stop: () => client.close().then(() => server.stop()) }
    },
  },
  consul: {
    waiting: '–',
    isEndKnown: false,
    async start() {
      const server = await startConsul()
      return { engine: () => consul(server.url, { sessionTtlMin: '1s' }), stop: () => server.stop() }
    },
  },
  zookeeper: {
    waiting: '1',
    async start() {
      const server = await startZookeeper()
      return { engine: () => zookeeper(driver, `${server.host}:${server.port}`), stop: () => server.stop() }
    },
  },
  file: {
    waiting: '1',
    async start() {
      const folder = createFolder('dashboard')
      return {
        engine: () => file(join(folder, 'locks.db')),
        stop: async () => rmSync(folder, { recursive: true, force: true }),
      }
    },
  },
  etcd: {
    waiting: '1',
    async start() {
      const server = await startEtcd()
      return { engine: () => etcd(server.url), stop: () => server.stop() }
    },
  },
}

const browser = oneBrowser()

describe.each(Object.keys(kinds))('%s', (kind) => {
  test('a grant, a renewal, a waiter and a release appear on a page that stays open', async () => {
    const { waiting, isEndKnown = true, isClockKnown = false } = kinds[kind]!
    const servers = await kinds[kind]!.start()
    const locks = createLocks(servers.engine(), { ttl: '4s', label: 'billing-1' })
    const others = createLocks(servers.engine(), { ttl: '4s', label: 'billing-2', wait: '30s' })
    const viewed = servers.engine()
    const site = await Site.start(viewed)
    try {
      const first = await locks.acquire('order:42')
      const page = await browser.visit(site.url)
      await isLive(page)
      await page.evaluate('window.isTheSame = true')
      await row(page, 'order:42').waitFor()
      expect(await cell(page, 'order:42', 'token')).toBe(String(first.token))
      expect(await cell(page, 'order:42', 'holder')).toBe('billing-1')
      expect(await page.locator('#engine').textContent()).toBe(kind)

      const tiles = page.locator('#nodes .numbers')
      const tile = isClockKnown ? /^[\d.]+ msclock [+−][\d.]+ ms$/ : /^[\d.]+ ms$/
      await isTrue('its first server answers', async () => tile.test((await tiles.first().textContent()) ?? ''))

      const second = await locks.acquire('stock:7')
      await row(page, 'stock:7').waitFor()
      expect(await cell(page, 'stock:7', 'token')).toBe(String(second.token))

      await (isEndKnown ? isRenewed(page, 'order:42') : undefined)

      const next = others.acquire('order:42')
      await isTrue('one waits', async () => (await cell(page, 'order:42', 'waiters')) === waiting)
      const grid = page.getByRole('grid', { name: 'Leases' })
      expect(await grid.getByRole('row', { name: 'order:42' }).getAttribute('aria-rowindex')).toBe('2')
      await page.getByRole('searchbox', { name: 'Search leases' }).press('ArrowDown')
      await isTrue('the first is chosen', async () => (await focused(page)) === 'order:42')
      await page.keyboard.press('Enter')
      expect(await focused(page)).toBe('close')
      const named = page.locator('#line li .who')
      await isTrue('its details are there', async () => (await page.locator('#history li').count()) > 0)
      await isTrue(
        'who waits is named',
        async () => (await named.allTextContents()).join() === (waiting === '1' ? 'billing-2' : ''),
      )
      const why = page.locator('#why')
      await page.locator('#why-box summary').click()
      await why.getByText(isEndKnown ? /^It is renewed: / : /^This engine does not tell when it was renewed/).waitFor()
      expect(await why.locator('li').first().textContent()).toContain(`billing-1 has held it for `)
      expect(await page.getByRole('img', { name: 'billing-1: ' }).getAttribute('aria-label')).toMatch(
        isEndKnown ? /, renewed \d+ time/ : /ago, held now\.$/,
      )
      expect(await outsideAtAnyWidth(page)).toEqual([])
      await page.keyboard.press('Escape')
      expect(await focused(page)).toBe('order:42')
      await first.release()
      const third = await next
      await isTrue('it is the next one’s', async () => (await cell(page, 'order:42', 'holder')) === 'billing-2')
      expect(await cell(page, 'order:42', 'token')).toBe(String(third.token))

      await third.release()
      await row(page, 'order:42').waitFor({ state: 'detached' })
      await second.release()
      await page.locator('#none').waitFor()
      expect(await page.evaluate('window.isTheSame')).toBe(true)
    } finally {
      await browser.leave()
      await site.close()
      await Promise.all([locks.close(), others.close(), viewed.close()])
      await servers.stop()
    }
  })
})

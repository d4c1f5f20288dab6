import { mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import type { Page } from 'playwright-core'
import { test } from 'vitest'
import type { Engine } from '../../src/engine.ts'
import { redis, redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import type { LeaseOptions } from '../../src/options.ts'
import { startRedis, startRedisNodes } from '../../harness/servers/redis.ts'
import { oneBrowser } from './browser.ts'
import { history, isLive, isTrue, row } from './page.ts'
import { Site } from './site.ts'

const browser = oneBrowser()
const IMAGES = join(import.meta.dirname, '../../docs/images')
/** Whoever clones the project or reads its front page loads them. */
const MOST_BYTES = 200_000

const HOLDERS: Record<string, readonly string[]> = {
  'billing-1': ['order:1041', 'order:1043', 'order:1048', 'invoice:2026-11', 'stock:7'],
  'billing-2': ['order:1042', 'order:1044', 'order:1047'],
  'mail-a': ['mail/outbox/3', 'mail/outbox/4'],
  'reports@eu': ['report:nightly'],
  scheduler: ['leader'],
}

const TERMS: readonly LeaseOptions[] = [
  { ttl: '15s' },
  { ttl: '14s', renew: false },
  { ttl: '50s', renew: false },
  { ttl: '30s' },
  { ttl: '10s', renew: false },
]

test('a quorum of Redis masters, in light colours and on a phone', async () => {
  const group = await startRedisNodes(5, { durable: true })
  const clients = group.urls.map((url) => new Redis(url))
  const cast = await Cast.gather(() => redlock(clients))
  try {
    await cast.shoot('dashboard-light', { colorScheme: 'light', viewport: { width: 1180, height: 760 } })
    await cast.shoot('dashboard-phone', { colorScheme: 'light', viewport: { width: 390, height: 780 } })
  } finally {
    await cast.leave()
    for (const client of clients) client.disconnect()
    await group.stop()
  }
})

test('one Redis, in dark colours: why a lease is stuck, who waits, and how it lived', async () => {
  const server = await startRedis()
  const client = new Redis(server.url)
  const cast = await Cast.gather(() => redis(client))
  try {
    // Three in a row, one after the other, and two who still wait.
    const waiting = ['billing-2', 'billing-3', 'billing-4'].map((label) => cast.wait(label, 'order:1041'))
    await cast.shoot(
      'dashboard-dark',
      { colorScheme: 'dark', viewport: { width: 1180, height: 1000 }, deviceScaleFactor: 1.2 },
      async (page) => {
        await row(page, 'order:1041').click()
        await page.locator('.renewal').nth(1).waitFor()
        await cast.release('order:1041')
        const next = await Promise.race(waiting)
        await isTrue('it was handed on', async () => (await history(page))[0]?.endsWith(` ${next.token}`) === true)
        await isTrue('two wait behind it', async () => (await page.locator('#figure-waiters').textContent()) === '2')
        await page.locator('.lane:last-child .renewal').nth(1).waitFor()
        await page.locator('#why-box summary').click()
        await page.locator('#search').fill('or')
        // The room is for what is new.
        await page.evaluate(
          `document.querySelector('#details').scrollTop = document.querySelector('#why-box').offsetTop - 20`,
        )
      },
    )
  } finally {
    await cast.leave()
    client.disconnect()
    await server.stop()
  }
})

/** Those who hold the leases in the picture, each with an engine of its own, and the dashboard. */
class Cast {
  readonly #makeEngine: () => Engine
  readonly #viewed: Engine
  readonly #site: Site
  readonly #locks: Locks[] = []
  readonly #leases = new Map<string, { release(): Promise<unknown> }>()

  constructor(makeEngine: () => Engine, viewed: Engine, site: Site) {
    this.#makeEngine = makeEngine
    this.#viewed = viewed
    this.#site = site
  }

  static async gather(makeEngine: () => Engine): Promise<Cast> {
    const viewed = makeEngine()
    const cast = new Cast(makeEngine, viewed, await Site.start(viewed, { auth: () => 'write' }))
    for (const [label, resources] of Object.entries(HOLDERS)) {
      const locks = cast.#join(label)
      for (const [index, resource] of resources.entries()) {
        // Some are renewed, and some run down.
        const terms = TERMS[index % TERMS.length]!
        const lease = await locks.acquire(resource, terms)
        cast.#leases.set(resource, lease)
      }
    }
    return cast
  }

  #join(label: string): Locks {
    const locks = createLocks(this.#makeEngine(), { label, wait: '60s' })
    this.#locks.push(locks)
    return locks
  }

  wait(label: string, resource: string): ReturnType<Locks['acquire']> {
    const lease = this.#join(label).acquire(resource, { ttl: '10s' })
    // Those who wait until the end are told that it is over.
    lease.catch(() => undefined)
    return lease
  }

  async release(resource: string): Promise<void> {
    await this.#leases.get(resource)?.release()
  }

  async shoot(
    name: string,
    options: Parameters<typeof browser.visit>[1],
    act: (page: Page) => Promise<void> = async () => undefined,
  ): Promise<void> {
    const page = await browser.visit(this.#site.url, { deviceScaleFactor: 1.5, ...options })
    await isLive(page)
    await page.locator('#doctor').waitFor()
    await act(page)
    // Bars are worth looking at when one of them is short.
    await page.locator('.bar[data-level=low]').first().waitFor({ state: 'attached' })
    await page.mouse.move(0, 0)
    await page.evaluate('document.activeElement.blur()')
    mkdirSync(IMAGES, { recursive: true })
    const file = join(IMAGES, `${name}.png`)
    await page.screenshot({ path: file })
    const { size } = statSync(file)
    if (size > MOST_BYTES) throw new Error(`${file} has ${size} bytes, and ${MOST_BYTES} at most are wanted`)
  }

  async leave(): Promise<void> {
    await browser.leave()
    await this.#site.close()
    await Promise.all(this.#locks.map((locks) => locks.close()))
    await this.#viewed.close()
  }
}

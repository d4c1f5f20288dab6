import type { LookupFunction } from 'node:net'
import { Redis } from 'ioredis'
import type { Page } from 'playwright-core'
import { createClient } from 'redis'
import { expect, test } from 'vitest'
import { redlock } from '../../src/engines/redis/index.ts'
import { createLocks } from '../../src/index.ts'
import { startRedisNodes } from '../../harness/servers/redis.ts'
import { oneBrowser } from './browser.ts'
import { isTrue } from './page.ts'
import { outsideAtAnyWidth } from './readable.ts'
import { Site } from './site.ts'

const browser = oneBrowser()

/** Names as they are in a large company; this machine knows none of them. */
const toThisMachine: LookupFunction = (_, { all }, callback) =>
  all === true ? callback(null, [{ address: '127.0.0.1', family: 4 }]) : callback(null, '127.0.0.1', 4)

test('each of five servers with long names has its round trip and clock, what the doctor found, and a word when it is down', async () => {
  const group = await startRedisNodes(5, { args: ['--maxmemory', '50mb', '--maxmemory-policy', 'allkeys-lru'] })
  const hosts = group.nodes.map((_, index) => `orders-locks-${index + 1}.cache.eu-central-1.internal.example.org`)
  const clients = group.nodes.map(({ port }, index) =>
    // With its notifications it would look the name up by itself as well.
    createClient({
      socket: { host: hosts[index]!, port, lookup: toThisMachine, reconnectStrategy: 100 },
      maintNotifications: 'disabled',
    }),
  )
  await Promise.all(clients.map((client) => client.on('error', () => undefined).connect()))
  const engine = redlock(clients)
  const site = await Site.start(engine)
  try {
    const page = await browser.visit(site.url)
    await isTrue('five servers', async () => (await nodes(page)).length === 5)
    const names = group.nodes.map(({ port }, index) => `${hosts[index]}:${port}`)
    expect((await nodes(page)).map(({ name }) => name).sort()).toEqual([...names].sort())
    for (const { numbers } of await nodes(page)) expect(numbers).toMatch(/^[\d.]+ ms, clock [+−][\d.]+ ms$/)

    await page.getByText(/\d+ critical finding/).waitFor()
    await page.locator('#doctor > summary').click()
    const eviction = page.locator('#findings li').filter({ hasText: 'redis/eviction-policy' })
    expect(await eviction.count()).toBe(1)
    expect(await eviction.locator('.found').textContent()).toMatch(/^5 servers \(/)
    expect(await eviction.first().locator('.found').textContent()).toContain('allkeys-lru')
    expect(await eviction.first().locator('.remedy').textContent()).toContain('noeviction')

    expect(await outsideAtAnyWidth(page)).toEqual([])

    await group.nodes[1]!.kill()
    await isTrue('one is down', async () =>
      (await nodes(page)).some(
        ({ name, state, numbers }) => name === names[1] && state === 'critical' && !numbers.includes('clock'),
      ),
    )
    expect(await outsideAtAnyWidth(page)).toEqual([])
    await group.nodes[1]!.restart()
    await isTrue('it is back', async () => (await nodes(page)).every(({ numbers }) => numbers.includes('clock')))
  } finally {
    await browser.leave()
    await site.close()
    await engine.close()
    for (const client of clients) client.destroy()
    await group.stop()
  }
})

test('two of three nodes that were emptied are shown as sitting out, and the doctor says at once that no lease can be had', async () => {
  const group = await startRedisNodes(3)
  const clients = group.urls.map((url) => new Redis(url, { retryStrategy: () => 100 }))
  for (const client of clients) client.on('error', () => undefined)
  const engine = redlock(clients)
  const locks = createLocks(engine)
  const site = await Site.start(engine)
  try {
    await (await locks.acquire('order')).release()
    const page = await browser.visit(site.url)
    await isTrue('three servers', async () => (await nodes(page)).length === 3)
    await page.locator('#doctor-summary').getByText(/ok$/).waitFor()
    const critical = page.locator('#doctor-summary').getByText(/critical/)
    expect(await critical.count()).toBe(0)
    const names = group.nodes.map(({ port }) => `127.0.0.1:${port}`)
    const sitOut = async (): Promise<string[]> =>
      (await nodes(page))
        .filter(({ state, numbers }) => state === 'warning' && /, sits out for \d+ s /.test(numbers))
        .map(({ name }) => name)
        .sort()
    expect(await sitOut()).toEqual([])

    for (const node of group.nodes.slice(0, 2)) {
      await node.kill()
      await node.restart({ empty: true })
    }
    await isTrue('two sit out', async () => String(await sitOut()) === String(names.slice(0, 2).sort()))
    // Otherwise it would look again a minute after it has looked at first.
    await critical.waitFor({ timeout: 15_000 })
    await page.locator('#doctor > summary').click()
    const voters = page.locator('#findings li').filter({ hasText: 'redis/voters' })
    expect(await voters.locator('.found').textContent()).toMatch(/^1 of 3 nodes may vote; 2 are needed/)
    expect(await voters.getAttribute('data-severity')).toBe('critical')
  } finally {
    await browser.leave()
    await site.close()
    await locks.close()
    for (const client of clients) client.disconnect()
    await group.stop()
  }
})

interface Shown {
  name: string
  state: string
  numbers: string
}

function nodes(page: Page): Promise<Shown[]> {
  return page.evaluate<Shown[]>(`[...document.querySelectorAll('#nodes li')].map((node) => ({
    name: node.querySelector('.name').textContent,
    state: node.dataset.severity,
    numbers: [...node.querySelectorAll('.numbers span')].map((part) => part.textContent).join(', '),
  }))`)
}

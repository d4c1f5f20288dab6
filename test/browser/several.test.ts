import { expect, test } from 'vitest'
import { Redis } from 'ioredis'
import { file } from '../../src/engines/file/index.ts'
import { redlock } from '../../src/engines/redis/index.ts'
import { createLocks } from '../../src/locks.ts'
import { startRedisNodes } from '../../harness/servers/redis.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { oneBrowser } from './browser.ts'
import { isLive, isTrue, names, row } from './page.ts'
import { outsideAtAnyWidth } from './readable.ts'
import { Site } from './site.ts'

const browser = oneBrowser()

test('each of several engines has a link with how it is, and a page of its own', async () => {
  const folder = createFolder('several')
  const group = await startRedisNodes(3)
  const clients = group.urls.map((url) => new Redis(url, { retryStrategy: () => 100 }).on('error', () => undefined))
  const orders = redlock(clients)
  const reports = file(`${folder}/locks.db`)
  const site = await Site.start({ orders, reports }, { auth: () => 'write', whenIdle: '1s' })
  const [one, two] = [createLocks(redlock(clients), { label: 'billing-1' }), createLocks(reports)]
  try {
    const lease = await one.acquire('order:42')
    await two.acquire('report:1')
    await two.acquire('report:2')
    const page = await browser.visit(site.url)
    await isLive(page)
    await isTrue('its own', async () => (await names(page)).join() === 'order:42')
    const engines = page.getByRole('navigation', { name: 'Engines' })
    const links = async (): Promise<string> => (await engines.getByRole('link').allInnerTexts()).join()
    await isTrue('both are there', async () => /^orders 1 lease.*,reports 2 leases/.test(await links()))
    expect(await engines.locator('[aria-current=page]').innerText()).toMatch(/^orders/)
    await group.nodes[0]!.kill()
    await isTrue('one is silent', async () => (await links()).includes('orders 1 lease 1 of 3 silent'))
    expect(await engines.getByRole('link', { name: 'orders' }).getAttribute('data-severity')).toMatch(
      /warning|critical/,
    )
    await row(page, 'order:42').click()
    await page.locator('#history li').waitFor()
    expect(await outsideAtAnyWidth(page)).toEqual([])
    await page.locator('#close').click()

    await engines.getByRole('link', { name: 'reports' }).press('Enter')
    await page.waitForURL(/\?engine=reports$/)
    await isLive(page)
    await isTrue('the other’s', async () => (await names(page)).join() === 'report:1,report:2')
    expect(await page.locator('#engine').textContent()).toBe('file')
    expect(await page.title()).toBe('reports · ringfence')
    await row(page, 'report:2').click()
    await page.locator('#release').click()
    await page.locator('#ask-confirm').click()
    await isTrue('it is released', async () => (await page.locator('#ask-result').textContent()) === 'Released.')
    await isTrue('it is gone there', async () => (await names(page)).join() === 'report:1')
    await page.goto(`${site.url}?engine=nothing`)
    await isTrue('an unknown one is the first one', async () => (await names(page)).join() === 'order:42')
    await lease.release()
  } finally {
    await browser.leave()
    await site.close()
    await Promise.all([one.close(), two.close(), orders.close()])
    for (const client of clients) client.disconnect()
    await group.stop()
    removeFolder(folder)
  }
})

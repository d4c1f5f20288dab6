import { expect, test } from 'vitest'
import { memory } from '../../src/engines/memory.ts'
import type { Engine, LeaseInfo } from '../../src/index.ts'
import { createLocks } from '../../src/locks.ts'
import { viewOf } from '../../harness/engine-view.ts'
import { oneBrowser } from './browser.ts'
import { history, isTrue, row } from './page.ts'
import { Site } from './site.ts'

const browser = oneBrowser()

test('a lock that is only offered has a row that says so, and no buttons', async () => {
  const engine = memory()
  await using locks = createLocks(viewOf(engine), { label: 'billing-1', ttl: '30s' })
  await locks.acquire('order:42')
  const offer = {
    resource: 'order:43',
    owner: `${'a'.repeat(32)}@billing-2`,
    token: 0n,
    remainingMs: 2000,
    offered: true,
  }
  let isOffered = true
  // As the Redis engine shows it; memory has no line to offer from.
  const inspect = async function* (resource?: string): AsyncIterable<LeaseInfo> {
    yield* engine.inspect(resource)
    if (isOffered) yield offer
  }
  const offering = Object.create(viewOf(engine), { inspect: { value: inspect } }) as Engine
  await using site = await Site.start(offering, { auth: () => 'write' })
  const page = await browser.visit(site.url)
  const offered = row(page, 'order:43')
  await offered.waitFor()
  expect(await offered.locator('.cell.holder').textContent()).toBe('offered to billing-2')
  expect(await offered.locator('.cell.token').textContent()).toBe('–')
  expect(await page.locator('#figure-leases').textContent()).toBe('1')
  expect(await page.locator('#figure-holders').textContent()).toBe('1')
  await offered.click()
  await page.getByText('nobody: offered to billing-2').waitFor()
  expect(await page.locator('#release').isVisible()).toBe(false)
  isOffered = false
  await page.getByText('Free: nobody holds it now.').waitFor()
  await browser.leave()
})

test('each reader of a resource has a row of its own, and is released without the others', async () => {
  const engine = memory()
  await using first = createLocks(viewOf(engine), { label: 'billing-1', ttl: '3s' })
  await using second = createLocks(viewOf(engine), { label: 'billing-2', ttl: '3s' })
  const leases = [await first.acquire('report', { shared: true }), await second.acquire('report', { shared: true })]
  await first.acquire('order:42')
  await using site = await Site.start(engine, { auth: () => 'write' })
  const page = await browser.visit(site.url)
  const one = row(page, 'report').filter({ hasText: 'billing-1 shared' })
  const other = row(page, 'report').filter({ hasText: 'billing-2 shared' })
  await one.waitFor()
  await other.waitFor()
  expect(await row(page, 'order:42').locator('.cell.holder').textContent()).toBe('billing-1')

  await other.click()
  expect(await page.locator('#details-facts').textContent()).toContain('Kindshared')
  await page.locator('#release').click()
  expect(await page.locator('#ask-whose').textContent()).toMatch(/^report is shared by billing-2 for /)
  await page.locator('#ask-confirm').click()
  await page.getByText('Released.', { exact: true }).waitFor()
  await other.waitFor({ state: 'detached' })
  await isTrue('its holder has noticed', async () => leases[1]!.signal.aborted)
  await page.locator('#ask-cancel').click()
  await page.getByText('Over: it is held by others now.').waitFor()
  expect(await one.count()).toBe(1)
  expect(leases[0]!.held).toBe(true)
  await isTrue('it is in the history', async () => {
    return (await history(page)).includes(`released by force ${leases[1]!.token}`)
  })

  await page.getByRole('searchbox', { name: 'Search leases' }).fill('shared')
  await row(page, 'order:42').waitFor({ state: 'detached' })
  expect(await one.count()).toBe(1)
  await leases[0]!.release()
  await page.getByText('Free: nobody holds it now.').waitFor()
  await browser.leave()
})

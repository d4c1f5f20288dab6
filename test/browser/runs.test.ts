import { Redis } from 'ioredis'
import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { redisGuard } from '../../src/guards/index.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { oneBrowser } from './browser.ts'
import { focused, history, isLive, isTrue, row } from './page.ts'
import { outsideAtAnyWidth } from './readable.ts'
import { Stage } from './stage.ts'

const browser = oneBrowser()
const HOSTILE = '<img src=x onerror=alert(1)>\u202ecba'

/** The runs in the details: what, who, token and message, without their times. */
function runs(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`
    [...document.querySelectorAll('#runs li')].map((run) =>
      ['.what', '.who', '.token', '.message']
        .map((part) => run.querySelector(part)?.textContent ?? '')
        .join(' | ')
        .replace(/[\\d.]+ ?m?s(?= \\|)/, 'a while')
    )
  `)
}

test('a job that nobody holds is found by its name, with its runs, which are nothing but text', async () => {
  await using server = await startRedis()
  const client = new Redis(server.url).on('error', () => undefined)
  const guard = redisGuard(client, { requestTimeout: '1s' })
  await using stage = await Stage.set(browser, { runs: guard })
  const locks = stage.locks({ label: HOSTILE })
  const tokens: bigint[] = []
  const run = (work = async (): Promise<void> => undefined): Promise<unknown> =>
    locks.once('nightly', { runs: guard }, (lease) => {
      tokens.push(lease.token)
      return work()
    })
  await run()
  // Runs of one millisecond have no order.
  const now = Date.now()
  await isTrue('the next millisecond', async () => Date.now() > now)
  await expect(run(() => Promise.reject(new Error(HOSTILE)))).rejects.toThrow(HOSTILE)
  const held = await locks.acquire('nightly-2')

  const page = await stage.visit({ expected: /503 \(Service Unavailable\)/ })
  await isLive(page)
  const offer = page.locator('#job')
  expect(await offer.isVisible()).toBe(false)
  await page.locator('#search').fill('nightly-2')
  await row(page, 'nightly-2').click()
  await isTrue('its history is there', async () => (await history(page)).length > 0)
  expect(await offer.isVisible()).toBe(false)
  expect(await page.locator('#runs-box').isVisible()).toBe(false)
  await page.keyboard.press('Escape')

  // Also where leases with similar names are found.
  await page.locator('#search').fill('nightly')
  await offer.waitFor()
  expect(await offer.textContent()).toBe('runs of nightly')
  await page.locator('#search').press('Enter')
  const done = (index: number): string => `done in a while | ${HOSTILE} | ${tokens[index]} | `
  const known = (): string[] => [`failed after a while | ${HOSTILE} | ${tokens[1]} | ${HOSTILE}`, done(0)]
  const shown = async (): Promise<string> => (await runs(page)).join('\n')
  await isTrue('its runs are there', async () => (await shown()) === known().join('\n'))
  expect(await page.locator('#details-free').textContent()).toBe('Free: nobody holds it now.')
  expect(await page.locator('#details :is(img, script, b)').count()).toBe(0)
  expect(await page.locator('#runs .age').first().textContent()).toMatch(/^\d+ \w+ \d{4}, \d\d:\d\d:\d\d$/)

  expect(await outsideAtAnyWidth(page)).toEqual([])

  // A run that was too short for a look at the engine.
  await run()
  await isTrue('the third run', async () => (await shown()) === [done(2), ...known()].join('\n'))

  await server.stop()
  await page.getByText('The runs could not be loaded: the store of runs: ').waitFor()
  expect(await page.locator('#runs li').count()).toBe(3)
  await page.locator('#search').fill('')
  await row(page, 'nightly-2').locator('.resource').click()
  await isTrue('the history does not depend on it', async () => (await history(page)).join().endsWith(` ${held.token}`))
  client.disconnect()
})

test('who looks for runs where there are none is told so, also when there are no leases', async () => {
  await using server = await startRedis()
  const client = new Redis(server.url)
  await using stage = await Stage.set(browser, { runs: redisGuard(client) })
  const page = await stage.visit()
  await isLive(page)
  await page.locator('#search').fill(` ${'x'.repeat(1000)} `)
  await page.locator('#job').click()
  await page.getByText('No run is recorded.', { exact: true }).waitFor()
  expect(await outsideAtAnyWidth(page)).toEqual([])
  await page.keyboard.press('Escape')
  expect(await focused(page)).toBe('search')
  client.disconnect()
})

test('without a store nothing speaks of runs', async () => {
  await using stage = await Stage.set(browser)
  const locks = stage.locks()
  await locks.acquire('held')
  const page = await stage.visit()
  await row(page, 'held').click()
  await isTrue('its history is there', async () => (await history(page)).length > 0)
  expect(await page.locator('#runs-box').isVisible()).toBe(false)
  await page.locator('#search').fill('nightly')
  await page.getByText('No lease matches.').waitFor()
  expect(await page.locator('#job').isVisible()).toBe(false)
  await page.locator('#search').press('Enter')
  expect(await page.locator('#details-name').textContent()).toBe('held')
})

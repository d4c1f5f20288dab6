import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { oneBrowser } from './browser.ts'
import { isLive, isTrue, row } from './page.ts'
import { hardToRead, outside } from './readable.ts'
import { Stage } from './stage.ts'

const browser = oneBrowser()
const PAGE = join(import.meta.dirname, '../../dist/dashboard/page')
/** Some more than it has, so that it cannot grow unnoticed. */
const MOST_BYTES = 32_000

test('the whole page is small: all of its files, compressed, are below the bound', () => {
  const files = readdirSync(PAGE)
  const bytes = files.reduce((sum, file) => sum + gzipSync(readFileSync(join(PAGE, file))).length, 0)
  expect(files).toContain('app.js')
  expect(bytes).toBeGreaterThan(5_000)
  expect(bytes).toBeLessThan(MOST_BYTES)
})

test.each([320, 360, 400])('on a phone of %d px nothing lies outside of the screen', async (width) => {
  await using stage = await Stage.set(browser, { auth: () => 'write' })
  const locks = stage.locks({ label: `worker-with-a-long-name-${'x'.repeat(80)}` })
  await locks.acquire('order:42')
  await locks.acquire(`long:${'y'.repeat(900)}`)
  const page = await stage.visit({ viewport: { width, height: 640 }, hasTouch: true, isMobile: true })
  await row(page, 'order:42').waitFor()
  await page.locator('#doctor > summary').waitFor()
  expect(await outside(page)).toEqual([])
  await page.locator('#doctor > summary').tap()
  expect(await outside(page)).toEqual([])
  await row(page, 'order:42').locator('.holder bdi').tap()
  await page.locator('#holder').waitFor()
  expect(await outside(page)).toEqual([])
  await row(page, 'order:42').locator('.resource').tap()
  await page.locator('#history li').waitFor()
  expect(await outside(page, '#details')).toEqual([])
  await page.locator('#release').tap()
  expect(await outside(page, '#ask')).toEqual([])
  await page.locator('#ask-cancel').tap()
  await page.locator('#close').tap()
  await page.locator('#order').selectOption('Ends first')
  expect(await page.locator('#details').isVisible()).toBe(false)
})

test('on the narrowest phone the title stands clear of the connection beside it, also with a button to log out', async () => {
  await using stage = await Stage.set(browser, { auth: () => 'write' })
  const page = await stage.visit({ viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true })
  await isLive(page)
  const gapPx = await page.evaluate<number>(`(() => {
    document.querySelector('#logout').hidden = false
    const title = document.createRange()
    title.selectNodeContents(document.querySelector('.brand h1'))
    return document.querySelector('#connection').getBoundingClientRect().left - title.getBoundingClientRect().right
  })()`)
  expect(gapPx).toBeGreaterThanOrEqual(8)
})

test.each(['light', 'dark'] as const)(
  'in %s colours every text is readable: a contrast of 4.5 or more',
  async (scheme) => {
    await using stage = await Stage.set(browser, { auth: () => 'write' })
    const locks = stage.locks({ renew: false })
    await locks.acquire('order:42', { ttl: '10m' })
    await locks.acquire('order\u200b:43', { ttl: '10m' })
    const page = await stage.visit({ colorScheme: scheme, expected: /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE/ })
    await row(page, 'order:42').waitFor()
    await page.locator('#doctor > summary').click()
    await page.locator('#search').fill('order')
    await row(page, 'order\u200b:43').click()
    await page.locator('#history li').waitFor()
    const background = await page.evaluate<string>('getComputedStyle(document.documentElement).backgroundColor')
    expect(lightness(background) > 0.5).toBe(scheme === 'light')
    expect(await hardToRead(page)).toEqual([])
    await page.locator('#release').click()
    await page.locator('#ask').waitFor()
    expect(await hardToRead(page)).toEqual([])
    await page.keyboard.press('Escape')
    await page.keyboard.press('Escape')
    await page.locator('#search').fill('nothing like it')
    await page.locator('#no-match').waitFor()
    expect(await hardToRead(page)).toEqual([])
    await stage.site.close()
    await page.locator('#offline').waitFor()
    expect(await hardToRead(page)).toEqual([])
  },
)

test('the button changes the colours, and the page remembers it', async () => {
  await using stage = await Stage.set(browser)
  const page = await stage.visit({ colorScheme: 'light' })
  await isLive(page)
  const isDark = async (): Promise<boolean> =>
    lightness(await page.evaluate<string>('getComputedStyle(document.documentElement).backgroundColor')) < 0.5
  expect(await isDark()).toBe(false)
  await page.getByRole('button', { name: 'Colours: auto' }).click()
  await page.getByRole('button', { name: 'Colours: light' }).click()
  await page.getByRole('button', { name: 'Colours: dark' }).waitFor()
  expect(await isDark()).toBe(true)
  await page.reload()
  await isTrue('it is still dark', isDark)
})

test('who wants no motion gets none', async () => {
  await using stage = await Stage.set(browser)
  await stage.locks().acquire('order:42')
  const moving = await stage.visit({ reducedMotion: 'no-preference' })
  await row(moving, 'order:42').waitFor()
  const still = await stage.visit({ reducedMotion: 'reduce' })
  await row(still, 'order:42').waitFor()
  expect(await transition(moving)).toBe('0.5s')
  expect(await transition(still)).toBe('0s')
})

test('a lock without an end, set by other software, says so, with a bar that is none', async () => {
  await using stage = await Stage.set(browser)
  await stage.locks({ renew: false }).acquire('order:42')
  await stage.server.cli('PERSIST', 'order:42')
  const page = await stage.visit()
  await isTrue('it is shown', async () => (await row(page, 'order:42').locator('.time').textContent()) === 'no end')
  expect(await row(page, 'order:42').locator('.bar').getAttribute('data-level')).toBe('endless')
})

test('an engine without leases says how to get one', async () => {
  await using stage = await Stage.set(browser)
  const page = await stage.visit()
  await page.getByText('No leases yet.').waitFor()
  expect(await page.locator('#none code').textContent()).toBe('ringfence run my-job -- sleep 60')
  expect(await page.getByRole('grid').isVisible()).toBe(false)
})

function transition(page: Page): Promise<string> {
  return page.evaluate<string>(`getComputedStyle(document.querySelector('.row')).transitionDuration`)
}

function lightness(colour: string): number {
  const [red = 0, green = 0, blue = 0] = (colour.match(/[\d.]+/g) ?? []).map(Number)
  return (red + green + blue) / 3 / 255
}

import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { oneBrowser } from './browser.ts'
import { focused, isLive, isTrue, row } from './page.ts'
import { hardToRead, outside } from './readable.ts'
import { Stage } from './stage.ts'

const browser = oneBrowser()
const HOSTILE = `<img src=x onerror=alert(1)>\u202e${'y'.repeat(60)}`

/** One that is renewed, one behind it in line, and one lease that has come and gone. */
async function scene(stage: Stage): Promise<{ page: Page; leave: () => Promise<void> }> {
  const holder = stage.locks({ label: HOSTILE, ttl: '3s', note: 'a note' })
  const waiter = stage.locks({ label: 'mail-a', wait: '5m' })
  const page = await stage.visit({ viewport: { width: 1280, height: 900 } })
  await isLive(page)
  const first = await holder.acquire('order:42')
  await row(page, 'order:42').waitFor()
  await first.release()
  await row(page, 'order:42').waitFor({ state: 'detached' })
  const second = await holder.acquire('order:42')
  const next = waiter.acquire('order:42')
  // A test that fails before the end of the wait fails by itself.
  next.catch(() => undefined)
  await row(page, 'order:42').locator('.waiters', { hasText: '1' }).waitFor()
  return {
    page,
    async leave() {
      await second.release()
      const third = await next
      await row(page, 'order:42').locator('bdi.holder', { hasText: 'mail-a' }).waitFor()
      await third.release()
    },
  }
}

test('a lease says why it is stuck, who waits since when, and how it lived, to mouse, keyboard and screen reader', async () => {
  const folder = createFolder('stuck')
  await using stage = await Stage.set(browser, { auth: () => 'write', history: `${folder}/history` })
  const { page, leave } = await scene(stage)
  const press = async (...keys: string[]): Promise<void> => {
    for (const key of keys) await page.keyboard.press(key)
  }
  await press('/', 'ArrowDown', 'Enter')
  expect(await focused(page)).toBe('close')
  await press('Tab', 'Tab', 'Tab', 'Tab')
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Why is this stuck?')
  await press('Enter')
  const why = page.getByRole('complementary', { name: 'order:42' }).locator('#why')
  await why.getByText(/^It is renewed: \d+ times, the last time \d s ago/).waitFor()
  const lines = await why.getByRole('listitem').allTextContents()
  expect(lines[0]).toMatch(/ has held it for \d+ s, with token \d+\. It says what for: a note$/)
  expect(lines).toContainEqual(expect.stringMatching(/^One waits for it\. The first in line is mail-a, for \d+ s\.$/))
  expect(lines).toContainEqual(expect.stringContaining('ringfence release --force order:42'))
  expect(lines.at(-1)).toContain('docs/operating/stuck.md')

  expect(await page.getByRole('list', { name: 'In line' }).getByRole('listitem').textContent()).toMatch(
    /^mail-afor \d+s$/,
  )
  const life = page.locator('#life')
  expect(await life.getAttribute('role')).toBe('img')
  const told = (await life.getAttribute('aria-label')) ?? ''
  expect(told).toMatch(/^The last 1 min\. /)
  expect(told.split(HOSTILE)).toHaveLength(3)
  expect(told).toMatch(/: granted \d+s ago.*, released \d+s ago\. /)
  expect(told).toMatch(/: granted \d+s ago, renewed \d+ times?, held now\.$/)
  expect(await life.locator('.lane').count()).toBe(2)
  expect(await life.locator('.renewal.guessed').count()).toBeGreaterThan(0)
  expect(await page.locator('#life-note').textContent()).toMatch(/^Hollow marks are inferred/)
  expect(await page.locator('#details :is(img, script)').count()).toBe(0)

  // A command that is being selected stays what it is while the sentences around it change.
  await page.evaluate("window.code = [...document.querySelectorAll('#why code')].at(-1)")
  const before = await why.textContent()
  await isTrue('the sentences go on', async () => (await why.textContent()) !== before)
  expect(await page.evaluate('window.code.isConnected')).toBe(true)

  for (const width of [320, 375, 680, 768, 1024, 1280, 1920]) {
    await page.setViewportSize({ width, height: 900 })
    expect([width, await outside(page, '#details')]).toEqual([width, []])
  }
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    expect(await hardToRead(page)).toEqual([])
  }
  await leave()
  removeFolder(folder)
})

test('the history of all is searched in words, with the keyboard alone, and is still there after a restart', async () => {
  const folder = createFolder('past')
  await using stage = await Stage.set(browser, { auth: () => 'read', history: `${folder}/history` })
  const { page, leave } = await scene(stage)
  await leave()
  await row(page, 'order:42').waitFor({ state: 'detached' })
  await stage.site.close()
  await stage.site.open()
  const again = await stage.visit({ viewport: { width: 1280, height: 900 } })
  await isLive(again)
  await again.locator('#search').fill('order')
  await again.getByRole('button', { name: 'Search the history' }).press('Enter')
  expect(await focused(again)).toBe('past-words')
  const panel = again.getByRole('complementary', { name: 'History' })
  const entries = panel.getByRole('listitem')
  await isTrue('all of it', async () => (await entries.count()) >= 5)
  const all = await entries.count()
  expect(await panel.getByRole('status').textContent()).toBe(`${all} entries.`)
  await again.keyboard.type(' MAIL-a handed')
  await again.keyboard.press('Enter')
  await isTrue('one of them', async () => (await panel.getByRole('status').textContent()) === '1 entry.')
  expect(await entries.textContent()).toMatch(/^order:42\d+ Nov \d{4}, [\d:]+handed over: mail-a\d+$/)
  for (const width of [320, 375, 680, 768, 1024, 1280, 1920]) {
    await again.setViewportSize({ width, height: 900 })
    expect([width, await outside(again)]).toEqual([width, []])
  }
  for (const colorScheme of ['light', 'dark'] as const) {
    await again.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    expect(await hardToRead(again)).toEqual([])
  }
  await again.keyboard.press('Tab')
  await again.keyboard.press('Tab')
  await again.keyboard.press('Enter')
  expect(await again.locator('#details-name').textContent()).toBe('order:42')
  await again.keyboard.press('Escape')
  expect(await again.locator('#details').isVisible()).toBe(false)
  expect(await panel.isVisible()).toBe(true)
  await again.keyboard.press('Escape')
  expect(await panel.isVisible()).toBe(false)
  expect(await focused(again)).toBe('past-open')
  removeFolder(folder)
})

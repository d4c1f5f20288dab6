import { expect, test } from 'vitest'
import type { AuditEntry } from '../../src/dashboard/index.ts'
import { oneBrowser } from './browser.ts'
import { cell, history, isLive, isTrue, row } from './page.ts'
import { Stage } from './stage.ts'

const browser = oneBrowser()
const readToken = 'a-token-to-read-with'
const writeToken = 'a-token-to-write-with'

test('who may only read sees nothing to release with, and the server refuses it all the same', async () => {
  await using stage = await Stage.set(browser)
  const lease = await stage.locks().acquire('order:42')
  const page = await stage.visit({ expected: /403/ })
  await row(page, 'order:42').click()
  await page.locator('#only-holder').waitFor()
  expect(await page.locator('#may').textContent()).toBe('read only')
  expect(await page.locator('#release').isVisible()).toBe(false)
  expect(await page.locator('#extend').isVisible()).toBe(false)
  const status = await page.evaluate<number>(`
    fetch('./release', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ resource: 'order:42', token: '${lease.token}' }),
    }).then((answer) => answer.status)
  `)
  expect(status).toBe(403)
  expect(lease.held).toBe(true)
})

test('a release asks whose it is, does nothing when cancelled, and then ends the lease for its holder too', async () => {
  const audited: AuditEntry[] = []
  await using stage = await Stage.set(browser, {
    auth: () => ({ role: 'write', name: 'ada' }),
    onAudit: (entry) => audited.push(entry),
  })
  const locks = stage.locks({ label: 'billing-1', ttl: '3s' })
  const lease = await locks.acquire('order:42')
  const page = await stage.visit()
  await row(page, 'order:42').click()
  await page.locator('#release').click()
  const dialog = page.getByRole('dialog', { name: 'Release this lease?' })
  await dialog.waitFor()
  expect(await page.locator('#ask-whose').textContent()).toMatch(
    new RegExp(`^order:42 is held by billing-1 for \\d+s, with token ${lease.token}\\.$`),
  )
  await dialog.getByRole('button', { name: 'Cancel' }).click()
  await dialog.waitFor({ state: 'hidden' })
  expect(audited).toEqual([])
  expect(lease.held).toBe(true)

  await page.locator('#release').click()
  await dialog.getByRole('button', { name: 'Release' }).click()
  await dialog.getByText('Released.', { exact: true }).waitFor()
  await row(page, 'order:42').waitFor({ state: 'detached' })
  await isTrue('the holder has noticed', async () => lease.signal.aborted)
  await dialog.getByRole('button', { name: 'Close' }).click()
  await page.getByText('Free: nobody holds it now.').waitFor()
  await isTrue('it is in the history', async () => (await history(page)).includes(`released by force ${lease.token}`))
  expect(audited).toMatchObject([{ action: 'release', outcome: 'done', who: 'ada', resource: 'order:42' }])
})

test('a lease that changed hands while the question was open is left alone', async () => {
  await using stage = await Stage.set(browser, { auth: () => 'write' })
  const first = await stage.locks({ label: 'billing-1' }).acquire('order:42')
  const page = await stage.visit()
  await row(page, 'order:42').click()
  await page.locator('#release').click()
  await first.release()
  const second = await stage.locks({ label: 'billing-2' }).acquire('order:42')
  await isTrue('the page knows the next one', async () => (await cell(page, 'order:42', 'holder')) === 'billing-2')
  await page.locator('#ask-confirm').click()
  await page.getByText('Nothing to release: this lease was over already.').waitFor()
  await expect(second.extend('30s')).resolves.not.toThrow()
  expect(second.held).toBe(true)
})

test('an extension makes the time left longer; a time that makes no sense is said so and changes nothing', async () => {
  await using stage = await Stage.set(browser, { auth: () => 'write' })
  await stage.locks({ renew: false, ttl: '50s' }).acquire('order:42')
  const page = await stage.visit({ expected: /409/ })
  await row(page, 'order:42').click()
  await page.locator('#extend').click()
  const input = page.getByLabel('Time from now')
  expect(await input.inputValue()).toBe('1m')
  await input.fill('for ever')
  await input.press('Enter')
  await page.getByText('Write a time such as 30s, 5m or 1h.').waitFor()
  await input.fill('1ms')
  await input.press('Enter')
  await page.getByText('This engine takes').waitFor()
  await input.fill('10s')
  await input.press('Enter')
  // The holder counts on what it was granted: the server would not shorten it.
  await page.getByText('the holder may count on').waitFor()
  expect(await cell(page, 'order:42', 'left')).toMatch(/^\d+s$/)
  await input.fill('2m')
  await input.press('Enter')
  await page.getByText('Extended: it ends in 2m 00s.').waitFor()
  await isTrue('it has more time', async () => /^1m 5\ds$/.test(await cell(page, 'order:42', 'left')))
})

test('the login form lets in who knows a token, and says so when it is a wrong one', async () => {
  await using stage = await Stage.set(browser, { readToken, writeToken })
  await stage.locks().acquire('order:42')
  const page = await stage.visit({ expected: /401/ })
  const token = page.getByLabel('Token')
  await token.fill('a-token-that-is-wrong')
  await token.press('Enter')
  await page.getByText('That token is not right.').waitFor()
  await token.fill(writeToken)
  await token.press('Enter')
  await isLive(page)
  expect(await page.locator('#may').textContent()).toBe('read and write')
  await row(page, 'order:42').click()
  await page.locator('#release').waitFor()
  await page.getByRole('button', { name: 'Log out' }).click()
  await token.fill(readToken)
  await token.press('Enter')
  await isLive(page)
  expect(await page.locator('#may').textContent()).toBe('read only')
  await row(page, 'order:42').click()
  await page.locator('#only-holder').waitFor()
  expect(await page.locator('#release').isVisible()).toBe(false)
})

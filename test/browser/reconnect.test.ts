import { expect, test } from 'vitest'
import { oneBrowser } from './browser.ts'
import { cell, history, isLive, isTrue, names, row } from './page.ts'
import { Stage } from './stage.ts'

const browser = oneBrowser()
/** The browser itself complains of servers that are away. */
const away = /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/

test('after a restart of its server the page has what is true now, and history begins anew', async () => {
  await using stage = await Stage.set(browser)
  const locks = stage.locks({ label: 'billing-1' })
  const early = await locks.acquire('early')
  const page = await stage.visit({ expected: away })
  await isLive(page)
  await page.evaluate('window.isTheSame = true')
  const stays = await locks.acquire('stays')
  await row(page, 'stays').click()
  await isTrue('the grant was seen', async () => (await history(page)).includes(`granted ${stays.token}`))

  await stage.site.close()
  await page.getByText('The dashboard’s server cannot be reached.').waitFor()
  expect(await page.getByRole('status').first().textContent()).toBe('not connected')
  // What was known is still there to be read, and marked as old.
  expect(await names(page)).toEqual(['early', 'stays'])
  expect(await page.locator('body[data-old]').count()).toBe(1)
  await early.release()
  await locks.acquire('late')

  await stage.site.open()
  await isLive(page)
  await isTrue('it knows what it missed', async () => (await names(page)).join() === 'late,stays')
  expect(await page.locator('body[data-old]').count()).toBe(0)
  expect(await page.locator('#offline').isVisible()).toBe(false)
  await isTrue(
    'the past began anew',
    async () => (await history(page)).join() === `held when the dashboard started ${stays.token}`,
  )
  await locks.acquire('live')
  await row(page, 'live').waitFor()
  expect(await page.evaluate('window.isTheSame')).toBe(true)
})

test('a server that asks for a token after its restart gets the login form instead of a page that waits for ever', async () => {
  await using stage = await Stage.set(browser)
  const page = await stage.visit({ expected: new RegExp(`${away.source}|401`) })
  await isLive(page)
  await stage.site.close()
  await page.locator('#offline').waitFor()
  await stage.site.open({ readToken: 'a-token-to-read-with' })
  await page.getByLabel('Token').waitFor()
})

test('an engine that is down is named, with what was known still on show; when it works again the notice goes', async () => {
  await using stage = await Stage.set(browser)
  await stage.locks({ renew: false, ttl: '10m' }).acquire('order:42')
  const page = await stage.visit()
  await row(page, 'order:42').waitFor()
  await stage.server.freeze()
  await page.getByText('The engine could not be looked through.').waitFor()
  expect(await page.locator('#trouble-text').textContent()).toContain(`:${stage.server.port}`)
  expect(await cell(page, 'order:42', 'left')).toMatch(/^\dm \d\ds$/)
  await stage.server.thaw()
  await page.locator('#trouble').waitFor({ state: 'hidden' })
  await isLive(page)
})

test('a page that is closed leaves no stream behind', async () => {
  await using stage = await Stage.set(browser)
  const page = await stage.visit()
  await isLive(page)
  expect(stage.site.pages).toBe(1)
  await page.close()
  await isTrue('the stream is closed', async () => stage.site.pages === 0)
})

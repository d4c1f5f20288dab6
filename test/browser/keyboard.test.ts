import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { oneBrowser } from './browser.ts'
import { focused, isLive, isTrue, names, row } from './page.ts'
import { Stage } from './stage.ts'

const browser = oneBrowser()
const COLUMNS = ['Resource', 'Holder', 'Token', 'Held for', 'Time left', 'Waiting']

test('everything can be done without a mouse, and the focus is always to be seen', async () => {
  await using stage = await Stage.set(browser, { auth: () => 'write' })
  const one = stage.locks({ label: 'billing-1' })
  const two = stage.locks({ label: 'billing-2' })
  for (const name of ['job:1', 'job:2', 'job:10']) await one.acquire(name)
  await two.acquire('mail')
  const page = await stage.visit()
  await isLive(page)
  await isTrue(
    'all are there, in the order people count',
    async () => (await names(page)).join() === 'job:1,job:2,job:10,mail',
  )
  const press = async (...keys: string[]): Promise<void> => {
    for (const key of keys) await page.keyboard.press(key)
  }

  await press('/')
  expect(await focused(page)).toBe('search')
  await page.keyboard.type('JOB')
  await isTrue('three match', async () => (await page.locator('#shown').textContent()) === '3 of 4')
  await press('ArrowDown')
  expect(await focused(page)).toBe('job:1')
  await press('ArrowDown')
  await isTrue('the next one is chosen', async () => (await focused(page)) === 'job:2')
  expect(await outline(page, '.row[data-state~=chosen]')).toMatch(/^solid 2px/)
  await press('End')
  await isTrue('the last one is chosen', async () => (await focused(page)) === 'job:10')
  await press('ArrowDown', 'ArrowUp', 'ArrowUp', 'ArrowUp', 'ArrowUp')
  await isTrue('the first one is chosen', async () => (await focused(page)) === 'job:1')

  await press('Enter')
  expect(await focused(page)).toBe('close')
  expect(await page.locator('#details-name').textContent()).toBe('job:1')
  await press('Escape')
  expect(await page.locator('#details').isVisible()).toBe(false)
  expect(await focused(page)).toBe('job:1')
  await press('Escape')
  await isTrue('all are shown again', async () => (await names(page)).length === 4)

  await press('End')
  await isTrue('mail is chosen', async () => (await focused(page)) === 'mail')
  await press('h')
  await isTrue('its holder’s alone', async () => (await names(page)).join() === 'mail')
  expect(await page.locator('#holder-name').textContent()).toBe('billing-2')
  await press('Enter', 'Tab', 'Tab', 'Tab')
  expect(await focused(page)).toBe('release')
  expect(await outline(page, '#release')).toMatch(/^solid 2px/)
  await press('Enter')
  expect(await focused(page)).toBe('ask-cancel')
  await press('Escape')
  expect(await page.locator('#ask').isVisible()).toBe(false)
  expect(await page.locator('#details').isVisible()).toBe(true)
  expect(await focused(page)).toBe('release')
  await press('Enter')
  await isTrue('the question is asked', async () => (await focused(page)) === 'ask-cancel')
  await press('Tab')
  await isTrue('yes is chosen', async () => (await focused(page)) === 'ask-confirm')
  await press('Enter')
  await isTrue('it is released', async () => (await page.locator('#ask-result').textContent()) === 'Released.')
  await press('Enter', 'Escape')
  await isTrue('it is gone', async () => !(await page.locator('#details').isVisible()))
  expect(await focused(page)).toBe('search')
  await press('Escape')
  await isTrue('the others are shown', async () => (await names(page)).join() === 'job:1,job:2,job:10')
})

test('the orders can be had with the keyboard, and are told to screen readers', async () => {
  await using stage = await Stage.set(browser)
  const locks = stage.locks({ renew: false })
  await locks.acquire('short', { ttl: '30s' })
  await locks.acquire('a long', { ttl: '10m' })
  await locks.acquire('medium', { ttl: '2m' })
  const page = await stage.visit()
  await isTrue('by name', async () => (await names(page)).join() === 'a long,medium,short')
  const header = page.getByRole('columnheader', { name: 'Time left' })
  await header.getByRole('button').focus()
  await page.keyboard.press('Enter')
  await isTrue('what ends first is first', async () => (await names(page)).join() === 'short,medium,a long')
  expect(await header.getAttribute('aria-sort')).toBe('ascending')
  await page.keyboard.press('Enter')
  await isTrue('what ends first is last', async () => (await names(page)).join() === 'a long,medium,short')
  expect(await header.getAttribute('aria-sort')).toBe('descending')
  expect(await page.locator('[aria-sort]').count()).toBe(1)
})

test('a screen reader finds a grid with rows, and hears of the connection', async () => {
  await using stage = await Stage.set(browser)
  await stage.locks({ label: 'billing-1' }).acquire('order:42')
  const page = await stage.visit()
  await row(page, 'order:42').waitFor()
  const grid = page.getByRole('grid', { name: 'Leases' })
  expect(await grid.getAttribute('aria-rowcount')).toBe('2')
  expect(await grid.getByRole('columnheader').allInnerTexts()).toEqual(COLUMNS)
  expect(await grid.getByRole('row', { name: 'order:42' }).getAttribute('aria-rowindex')).toBe('2')
  expect(await grid.getByRole('gridcell').count()).toBe(COLUMNS.length)
  expect(await page.getByRole('status').first().textContent()).toBe('live')
  expect(await page.getByRole('searchbox', { name: 'Search leases' }).count()).toBe(1)
})

test('a click on a holder shows what is his, and a click on the filter shows all again', async () => {
  await using stage = await Stage.set(browser)
  await stage.locks({ label: 'billing-1' }).acquire('order:1')
  await stage.locks({ label: 'billing-2' }).acquire('order:2')
  const page = await stage.visit()
  await row(page, 'order:2').getByText('billing-2').click()
  await isTrue('his alone', async () => (await names(page)).join() === 'order:2')
  expect(await page.locator('#details').isVisible()).toBe(false)
  await page.getByRole('button', { name: 'held by billing-2' }).click()
  await isTrue('all', async () => (await names(page)).join() === 'order:1,order:2')
})

function outline(page: Page, selector: string): Promise<string> {
  return page.evaluate<string>(`
    (({ outlineStyle, outlineWidth }) => outlineStyle + ' ' + outlineWidth)(
      getComputedStyle(document.querySelector('${selector}')),
    )
  `)
}

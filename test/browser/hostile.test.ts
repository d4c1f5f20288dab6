import { expect, test } from 'vitest'
import { oneBrowser } from './browser.ts'
import { history, isLive, isTrue, names, row } from './page.ts'
import { Stage } from './stage.ts'

const browser = oneBrowser()

const NAMES = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '"><svg onload=alert(1)>',
  '</textarea></title><style>*{display:none}</style>',
  'javascript:alert(1)',
  '\u202egnp.exe\u202c',
  '\u2066\u2067\u200f',
  'שלום:מנעול',
  '🔒👩‍👩‍👧‍👦',
  '  spaces  around  ',
  '{{constructor.constructor("alert(1)")()}}',
  '__proto__',
  'constructor',
  '&lt;b&gt;&amp;',
  '../../etc/passwd?a=b&c=%00#d',
  'x'.repeat(1024),
  '漢'.repeat(341),
]

test('whatever a resource and its holder are called is shown letter by letter, and is nothing but text', async () => {
  await using stage = await Stage.set(browser, { auth: () => 'write' })
  const locks = stage.locks({ label: '<b onmouseover=alert(2)>\u202emallory</b>' })
  for (const name of NAMES) await locks.acquire(name)
  await locks.acquire('plain')
  // Other software may have given it a name that we would refuse.
  const odd = 'line\nbreak\r\nand\ttab\u0000'
  await stage.grantPastTheCore(odd, '<b onmouseover=alert(2)>\u202emallory</b>')
  const page = await stage.visit({ viewport: { width: 1280, height: 1400 } })
  await isLive(page)
  await isTrue('all are there', async () => (await names(page)).length === NAMES.length + 2)
  expect((await names(page)).sort()).toEqual([...NAMES, 'plain', odd].sort())
  expect(await page.locator('#grid :is(script, img, svg, style, b)').count()).toBe(0)
  expect(
    await page.evaluate<string[]>(`[...new Set(
    [...document.querySelectorAll('.row .holder')].map((cell) => cell.textContent),
  )]`),
  ).toEqual(['<b onmouseover=alert(2)>\u202emallory</b>'])

  // No name moves anything outside of its own cell.
  const places = await page.evaluate<string[]>(`[...document.querySelectorAll('.row')].map((row) =>
    [row.getBoundingClientRect().height, ...[...row.children].flatMap((cell) => {
      const { left, width } = cell.getBoundingClientRect()
      return [left, width]
    })].join())`)
  expect(new Set(places).size).toBe(1)
  expect(await sideways(page)).toBe(0)
})

test('each of them can be found, looked at and released', async () => {
  await using stage = await Stage.set(browser, { auth: () => 'write' })
  const locks = stage.locks({ label: '<i>mallory</i>' })
  const leases = await Promise.all(NAMES.map((name) => locks.acquire(name)))
  await stage.locks({ label: 'another' }).acquire('another')
  const page = await stage.visit()
  for (const [index, name] of NAMES.entries()) {
    await page.locator('#search').fill(name)
    await isTrue('it is found alone', async () => (await names(page)).join() === name)
    await row(page, name).click()
    expect(await page.locator('#details-name').textContent()).toBe(name)
    const { token } = leases[index]!
    await isTrue('it has a history', async () => (await history(page)).join().endsWith(` ${token}`))
    expect(await page.locator('#history .who').first().textContent()).toBe('<i>mallory</i>')
    expect(await sideways(page)).toBe(0)
    await page.locator('#release').click()
    expect(await page.locator('#ask-whose').textContent()).toContain(`${name} is held by <i>mallory</i>`)
    await page.locator('#ask-confirm').click()
    await isTrue('it is released', async () => (await page.locator('#ask-result').textContent()) === 'Released.')
    await page.locator('#ask-cancel').click()
    await isTrue('it is gone', async () => (await names(page)).length === 0)
    await page.locator('#close').click()
  }
})

test('a name that looks like another is marked, and its invisible characters are written out', async () => {
  await using stage = await Stage.set(browser)
  const locks = stage.locks()
  await locks.acquire('order\u200b:42')
  await locks.acquire('order:42')
  const page = await stage.visit()
  await row(page, 'order\u200b:42').click()
  expect(await page.locator('#details-spelt').textContent()).toBe('"order\\u{200b}:42"')
  expect(await page.locator('.row[data-state~=disguised]').count()).toBe(1)
  await row(page, 'order:42').click()
  expect(await page.locator('#details-spelt').isVisible()).toBe(false)
})

function sideways(page: Awaited<ReturnType<Stage['visit']>>): Promise<number> {
  return page.evaluate<number>('document.documentElement.scrollWidth - document.documentElement.clientWidth')
}

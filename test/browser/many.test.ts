import type { Page } from 'playwright-core'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { oneBrowser } from './browser.ts'
import { focused, isLive, isTrue, names } from './page.ts'
import { Stage } from './stage.ts'

const browser = oneBrowser()
const COUNT = 10_000
const HEIGHT = 2000
/** Rows in view (of at least 44 px), and some above and below. */
const MOST_ROWS = Math.ceil(HEIGHT / 44) + 14

let stage: Stage
let page: Page

beforeAll(async () => {
  stage = await Stage.set(browser, { every: '1s' })
  const locks = stage.locks({ ttl: '10m', renew: false, label: 'billing-1' })
  const all = Array.from({ length: COUNT }, (_, index) => nameOf(index))
  // At most a hundred in one lease.
  for (let start = 0; start < COUNT; start += 100) await locks.acquire(all.slice(start, start + 100))
})

afterAll(() => stage[Symbol.asyncDispose]())

beforeEach(async () => {
  page = await stage.visit({ viewport: { width: 1280, height: HEIGHT } })
  await isLive(page)
  await isTrue('all are counted', async () => (await page.locator('#figure-leases').textContent()) === '10,000')
})

function nameOf(index: number): string {
  return `job:${index + 1}`
}

test('of 10,000 leases all can be scrolled to, while few rows exist and little is done in a frame', async () => {
  expect(await page.getByRole('grid').getAttribute('aria-rowcount')).toBe(String(COUNT + 1))

  const { seen, mostRows } = await scrollThrough()
  expect(seen).toEqual(Array.from({ length: COUNT }, (_, index) => nameOf(index)))
  expect(mostRows).toBeGreaterThan(10)
  expect(mostRows).toBeLessThanOrEqual(MOST_ROWS)

  // Standing still: each time the page wakes up, it writes at most two times and a bar for each row in view.
  const idle = await writesUntil(`new Promise((over) => { enough = over })`)
  expect(idle.mostAtOnce).toBeGreaterThan(0)
  expect(idle.mostAtOnce).toBeLessThanOrEqual(4 * MOST_ROWS)
  expect(idle.rowsMade).toBe(0)

  await page.locator('#search').fill('job:9876')
  await isTrue('one is found', async () => (await names(page)).join() === 'job:9876')
  await page.locator('#search').fill('')
  await isTrue('all are back', async () => (await names(page)).length > 1)
  await page.locator('#search').press('ArrowDown')
  await page.keyboard.press('End')
  await isTrue('the last one is chosen', async () => (await focused(page)) === 'job:10000')
  expect(await page.locator('.row').filter({ hasText: 'job:10000' }).isVisible()).toBe(true)
  await page.keyboard.press('Home')
  await isTrue('the first one is chosen', async () => (await focused(page)) === 'job:1')
  // Some ten seconds of work for one core, which others may want too.
}, 180_000)

test('10,000 leases that end at once cost the page no more than the rows in view', async () => {
  const ended = writesUntil(`new Promise((over) => {
    const look = () => document.querySelector('#none').hidden ? requestAnimationFrame(look) : over()
    look()
  })`)
  await stage.server.cli('FLUSHALL')
  const { rowsMade, rowsRemoved } = await ended
  // News come in parts, and rows move up between two of them: each part at most fills the view once.
  expect(rowsRemoved).toBeGreaterThan(10)
  expect(rowsMade + rowsRemoved).toBeLessThanOrEqual(4 * MOST_ROWS)
  expect(await page.locator('.row').count()).toBe(0)
})

/** Scrolls from the top to the end by a view at a time; all names in the order in which they were met. */
function scrollThrough(): Promise<{ seen: string[]; mostRows: number }> {
  return page.evaluate(`(async () => {
    const frame = () => new Promise(requestAnimationFrame)
    const seen = new Map()
    let mostRows = 0
    for (let top = 0; ; top += innerHeight - 200) {
      scrollTo(0, top)
      // The page paints in the frame in which it is told of the scroll; a task behind that sees it.
      await frame()
      await new Promise((soon) => setTimeout(soon))
      const rows = document.querySelectorAll('.row')
      mostRows = Math.max(mostRows, rows.length)
      for (const row of rows) seen.set(Number(row.getAttribute('aria-rowindex')), row.querySelector('.resource').textContent)
      if (top + innerHeight >= document.documentElement.scrollHeight) break
    }
    return { seen: [...seen].sort(([a], [b]) => a - b).map(([, name]) => name), mostRows }
  })()`)
}

interface Writes {
  /** To the list, by the page in one turn. */
  mostAtOnce: number
  rowsMade: number
  rowsRemoved: number
}

/** What is done to the list until something is so; `enough` is called when the page has written to it for the fifth time. */
function writesUntil(promise: string): Promise<Writes> {
  return page.evaluate(`(async () => {
    const counts = { mostAtOnce: 0, rowsMade: 0, rowsRemoved: 0 }
    let enough = () => {}
    let turns = 0
    const observer = new MutationObserver((records) => {
      counts.mostAtOnce = Math.max(counts.mostAtOnce, records.length)
      for (const { target, addedNodes, removedNodes } of records) {
        if (target.id !== 'rows') continue
        counts.rowsMade += addedNodes.length
        counts.rowsRemoved += removedNodes.length
      }
      if (++turns === 5) enough()
    })
    observer.observe(document.querySelector('#rows'), { subtree: true, childList: true, attributes: true, characterData: true })
    await ${promise}
    observer.disconnect()
    return counts
  })()`)
}

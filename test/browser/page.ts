import type { Locator, Page } from 'playwright-core'
import { until } from '../../harness/until.ts'

/** The row of a resource, by its whole name; it exists only while it is in view. */
export function row(page: Page, resource: string): Locator {
  return page.locator('.row').filter({ has: page.locator('.resource bdi', { hasText: exactly(resource) }) })
}

export async function cell(page: Page, resource: string, name: string): Promise<string> {
  return (await row(page, resource).locator(`.cell.${name}`).textContent()) ?? ''
}

/** The names of all rows that exist, in the order in which they are seen. */
export function names(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`
    [...document.querySelectorAll('.row')]
      .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
      .map((row) => row.querySelector('.resource').textContent)
  `)
}

export function isLive(page: Page): Promise<void> {
  return page.locator('#connection[data-state=live]').waitFor()
}

/** Resolves when what is left of a lease, in seconds, has become more. */
export async function isRenewed(page: Page, resource: string): Promise<void> {
  await page.evaluate(`
    new Promise((renewed) => {
      let least = Infinity
      const look = () => {
        const row = [...document.querySelectorAll('.row')]
          .find((row) => row.querySelector('.resource').textContent === ${JSON.stringify(resource)})
        const left = parseFloat(row.querySelector('.time').textContent)
        if (left > least + 0.5) return renewed()
        least = Math.min(least, left)
        requestAnimationFrame(look)
      }
      look()
    })
  `)
}

/** The details' history, newest first, as `what token`. */
export function history(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`
    [...document.querySelectorAll('#history li')]
      .map((entry) => entry.querySelector('.what').textContent + ' ' + entry.querySelector('.token').textContent)
  `)
}

/** What has the focus, by id; the row that is chosen where it is the list. */
export function focused(page: Page): Promise<string> {
  return page.evaluate<string>(`
    (() => {
      const focused = document.activeElement
      const row = document.getElementById(focused?.getAttribute('aria-activedescendant') ?? '')
      return row === null ? focused?.id ?? '' : row.querySelector('.resource').textContent
    })()
  `)
}

export async function isTrue(what: string, question: () => Promise<boolean>): Promise<void> {
  await until(question, { what, withinMs: 15_000, everyMs: 50 })
}

function exactly(text: string): RegExp {
  return new RegExp(`^${text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')}$`, 'u')
}

import type { Past, PastRow } from '../protocol.ts'
import { labelOf, type Happened } from './history.ts'
import type { Journal, JournalEntry } from './journal.ts'

/** How many a page gets. */
const MOST_SHOWN = 200

/** Of entries with the oldest first: the newest that have all of the words, in any case of letters. */
export function found(entries: readonly JournalEntry[], words: string, journal: Journal | undefined): Past {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean)
  const seen = new Set<string>()
  const rows: PastRow[] = []
  for (let index = entries.length - 1; index >= 0 && rows.length <= MOST_SHOWN; index--) {
    const { at, resource, type, owner, token, exact } = entries[index]!
    const text = `${resource}\n${owner}\n${token}\n${type}`
    if (!wanted.every((word) => text.toLowerCase().includes(word))) continue
    // Two dashboards on one file have each written it, and so has one that could not tell whether it had.
    const isTold = type !== 'extended' && seen.has(text)
    seen.add(text)
    if (!isTold) rows.push({ atMs: at, resource, type, owner, label: labelOf(owner), token, exact })
  }
  return {
    entries: rows.slice(0, MOST_SHOWN),
    more: rows.length > MOST_SHOWN,
    kept: journal === undefined ? 'in memory' : 'in a file',
    trouble: journal?.trouble ?? null,
  }
}

/** On the wall clock: `offsetMs` is how far that is ahead of the monotonic one. */
export function entryOf(engine: string, resource: string, happened: Happened, offsetMs: number): JournalEntry {
  const { atMs, type, owner, token, exact } = happened
  return { at: Math.round(atMs + offsetMs), engine, resource, type, owner, token: String(token), exact }
}

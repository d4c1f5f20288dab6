import { isOurs, ownerParts } from '../../owner.ts'
import type { HistoryEntry, HistoryType } from '../protocol.ts'

/** Limits on everything: some 100,000 entries, a few tens of megabytes at the very worst. */
const MOST_RESOURCES = 5000
const MOST_ENTRIES = 20

interface Happened {
  readonly atMs: number
  readonly type: HistoryType
  readonly owner: string
  readonly token: bigint
}

/** How a lease begins and ends; each is noted once for a lease, by the first that notices it. */
const STAGES: Readonly<Record<HistoryType, string>> = {
  seen: 'begin',
  granted: 'begin',
  'handed over': 'begin',
  released: 'end',
  lost: 'end',
  forced: 'end',
  extended: 'extended',
}

/** What happened lately, of the resources that something happened to most recently. */
export class Histories {
  readonly #resources = new Map<string, Happened[]>()

  add(resource: string, happened: Happened): void {
    const entries = this.#resources.get(resource) ?? []
    const stage = STAGES[happened.type]
    // Readers side by side may have the same token.
    const isTold = entries.some(({ token, owner, type }) => {
      return token === happened.token && owner === happened.owner && STAGES[type] === stage
    })
    if (isTold && stage !== 'extended') return
    entries.push(happened)
    if (entries.length > MOST_ENTRIES) entries.shift()
    // Behind all others: the first one is the one with the oldest news.
    this.#resources.delete(resource)
    this.#resources.set(resource, entries)
    if (this.#resources.size > MOST_RESOURCES) this.#resources.delete(this.#resources.keys().next().value!)
  }

  /** The newest first. */
  of(resource: string, nowMs: number): HistoryEntry[] {
    const entries = this.#resources.get(resource) ?? []
    return entries.toReversed().map(({ atMs, type, owner, token }) => ({
      agoMs: Math.max(0, Math.round(nowMs - atMs)),
      type,
      owner,
      label: labelOf(owner),
      token: String(token),
    }))
  }
}

/** Behind 128 random bits and an @ stands who the holder is, for people. Other software may have owners of another form. */
export function labelOf(owner: string): string | null {
  return (isOurs(owner) && ownerParts(owner).label) || null
}

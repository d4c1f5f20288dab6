import { isOurs, ownerParts } from '../../owner.ts'
import type { HistoryEntry, HistoryType } from '../protocol.ts'

/** Limits on everything: some 100,000 entries, a few tens of megabytes at the very worst. */
const MOST_RESOURCES = 5000
const MOST_ENTRIES = 20

export interface Happened {
  readonly atMs: number
  readonly type: HistoryType
  readonly owner: string
  readonly token: bigint
  /** As in `HistoryEntry`. */
  readonly exact: boolean
  /** Of the lease; absent if nothing was seen of it meanwhile, or not by this process. */
  readonly marks?: Marks
}

/** What happens to a lease between its beginning and its end. */
export interface Marks {
  /** The last of each, on our monotonic clock. */
  readonly renewals: number[]
  readonly doubts: number[]
  /** How often it was renewed in all. */
  renewed: number
  /** Locks of this process tell of it, so that looks need not guess. */
  isHeard: boolean
}

/** As many as a picture can show. */
const MOST_MARKS = 40

export function noMarks(): Marks {
  return { renewals: [], doubts: [], renewed: 0, isHeard: false }
}

export function mark(times: number[], atMs: number): void {
  times.push(atMs)
  if (times.length > MOST_MARKS) times.shift()
}

/** How a lease begins and ends; each is noted once for a lease, by the first that notices it. */
export const STAGES: Readonly<Record<HistoryType, 'begin' | 'end' | 'extended'>> = {
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

  /** False: it was known already. */
  add(resource: string, happened: Happened): boolean {
    const entries = this.#resources.get(resource) ?? []
    const stage = STAGES[happened.type]
    // Readers side by side may have the same token.
    const isTold = entries.some(({ token, owner, type }) => {
      return token === happened.token && owner === happened.owner && STAGES[type] === stage
    })
    if (isTold && stage !== 'extended') return false
    entries.push(happened)
    if (entries.length > MOST_ENTRIES) entries.shift()
    // Behind all others: the first one is the one with the oldest news.
    this.#resources.delete(resource)
    this.#resources.set(resource, entries)
    if (this.#resources.size > MOST_RESOURCES) this.#resources.delete(this.#resources.keys().next().value!)
    return true
  }

  /** Of all resources; those of each are in order. */
  *every(): Iterable<readonly [resource: string, happened: Happened]> {
    for (const [resource, entries] of this.#resources) for (const happened of entries) yield [resource, happened]
  }

  /** The oldest first. */
  all(resource: string): readonly Happened[] {
    return this.#resources.get(resource) ?? []
  }

  marksOf(resource: string, { owner, token }: Pick<Happened, 'owner' | 'token'>): Marks | undefined {
    return this.all(resource).find((one) => one.owner === owner && one.token === token)?.marks
  }

  /** The newest first. */
  of(resource: string, nowMs: number): HistoryEntry[] {
    return this.all(resource)
      .toReversed()
      .map(({ atMs, type, owner, token, exact }) => ({
        agoMs: Math.max(0, Math.round(nowMs - atMs)),
        type,
        owner,
        label: labelOf(owner),
        token: String(token),
        exact,
      }))
  }
}

/** Behind 128 random bits and an @ stands who the holder is, for people. Other software may have owners of another form. */
export function labelOf(owner: string): string | null {
  return (isOurs(owner) && ownerParts(owner).label) || null
}

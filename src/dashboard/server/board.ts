import { given } from '../../arguments.ts'
import type { Clock } from '../../clock.ts'
import type { InLine, LeaseInfo } from '../../engine.ts'
import type { LockEvent } from '../../events.ts'
import { ownerParts } from '../../owner.ts'
import { Histories, labelOf, mark, noMarks, type Happened, type Marks } from './history.ts'
import { livesOf } from './lives.ts'
import type { History, HistoryType, LeaseChanges, LeaseRow, LineRow } from '../protocol.ts'

export interface KnownLease {
  readonly key: string
  readonly resource: string
  readonly owner: string
  readonly token: bigint
  /** Nobody holds it: it is offered to this owner. */
  readonly offered: boolean
  /** On our monotonic clock; undefined for a lease without an end. */
  endsAtMs: number | undefined
  /** The latest that was ever seen. */
  latestEndMs: number | undefined
  /** As the pages know it. */
  toldEndMs: number | undefined
  ttlMs: number | undefined
  sinceMs: number
  heldExact: boolean
  waiters: number | undefined
  line: readonly InLine[]
  /** The look in which it was last seen. */
  look: number
  /** When it was first seen, and last. */
  readonly seenMs: number
  lookedMs: number
  looks: number
  /** What is left of it was seen to become less. An engine that does not know the end gives the whole ttl each time. */
  countsDown: boolean
  readonly marks: Marks
}

/** All leases in a few numbers. */
export interface Figures {
  readonly leases: number
  /** Undefined where the engine does not know it. */
  readonly waiters: number | undefined
  /** How long the oldest lease has been held, at least; undefined without a lease. */
  readonly oldestMs: number | undefined
  /** How long the first of all who wait has waited, where the engine knows it. */
  readonly longestWaitMs: number | undefined
}

export type Changes = Omit<LeaseChanges, 'agoMs' | 'reset' | 'more'>

/** An answer is this much late at times; a page need not hear of an end that moved by less. */
const JITTER_MS = 200
/** How much of a lease may be left when it is gone and it still counts as having run out: what a look can be off by. */
const RAN_OUT_MS = 250

/** A resource has one exclusive lease or several shared ones. Its name has no line break. */
function keyOf({ resource, owner, shared = false }: Pick<LeaseInfo, 'resource' | 'owner' | 'shared'>): string {
  return shared ? `${resource}\n${owner}` : resource
}

/** All leases as of the last look, and what came of the look before. */
export class Board {
  readonly #clock: Clock
  /** By key. */
  readonly #rows = new Map<string, KnownLease>()
  readonly #histories = new Histories()
  /** Ended here while a look was under way, which may have read them before: not to come back to life by it. */
  readonly #ended = new Map<string, bigint>()
  #pending = new Map<string, 'set' | 'end' | 'gone'>()
  #look = 0
  #looksDone = 0

  readonly #noted: (resource: string, happened: Happened) => void

  /** `noted` hears of each new entry of the history. */
  constructor(clock: Clock, noted: (resource: string, happened: Happened) => void = () => undefined) {
    this.#clock = clock
    this.#noted = noted
  }

  /** What a dashboard before this one has seen, the oldest first. */
  remember(resource: string, happened: Happened): void {
    this.#histories.add(resource, happened)
  }

  /** The history of all resources, the oldest first. */
  past(): (readonly [resource: string, happened: Happened])[] {
    return [...this.#histories.every()].sort(([, one], [, other]) => one.atMs - other.atMs)
  }

  /** How many are held. */
  get size(): number {
    let size = 0
    for (const { offered } of this.#rows.values()) if (!offered) size++
    return size
  }

  /** How many changes were not sent yet. */
  get news(): number {
    return this.#pending.size
  }

  begin(): void {
    this.#look++
    this.#ended.clear()
  }

  see(info: LeaseInfo): void {
    const { resource, owner, token, offered = false, remainingMs, heldMs, waiters, line = [] } = info
    const key = keyOf(info)
    const now = this.#clock.monotonicMs()
    const before = this.#rows.get(key)
    const ended = this.#ended.get(key)
    if (ended !== undefined && token <= ended) return
    const endsAtMs = remainingMs === undefined ? undefined : now + remainingMs
    if (before?.owner !== owner || before.token !== token || before.offered !== offered) {
      const row: KnownLease = {
        key,
        resource,
        owner,
        token,
        offered,
        endsAtMs,
        latestEndMs: endsAtMs,
        toldEndMs: endsAtMs,
        ttlMs: remainingMs,
        sinceMs: now - (heldMs ?? 0),
        heldExact: heldMs !== undefined,
        waiters,
        line,
        look: this.#look,
        seenMs: now,
        lookedMs: now,
        looks: 1,
        countsDown: false,
        marks: this.#histories.marksOf(resource, info) ?? noMarks(),
      }
      this.#rows.set(key, row)
      this.#pending.set(key, 'set')
      this.#began(row, before, now)
      return
    }
    before.look = this.#look
    before.lookedMs = now
    before.looks++
    if (before.countsDown && isRenewal(before, endsAtMs) && !before.marks.isHeard) renewedAt(before.marks, now)
    if (endsAtMs !== undefined) before.latestEndMs = Math.max(before.latestEndMs ?? 0, endsAtMs)
    if (remainingMs !== undefined && (before.ttlMs ?? 0) - remainingMs > JITTER_MS) before.countsDown = true
    before.endsAtMs = endsAtMs
    if (remainingMs !== undefined) before.ttlMs = Math.max(before.ttlMs ?? 0, remainingMs)
    if (before.waiters !== waiters || !isSameLine(before.line, line)) {
      before.waiters = waiters
      before.line = line
      this.#pending.set(key, 'set')
    } else if (hasMoved(before) && this.#pending.get(key) !== 'set') this.#pending.set(key, 'end')
  }

  /** The look is complete: what it has not seen is gone. */
  finish(): void {
    const now = this.#clock.monotonicMs()
    for (const [key, row] of this.#rows) {
      if (row.look === this.#look) continue
      this.#over(row, now)
      this.#remove(key)
    }
    this.#looksDone++
  }

  /** Someone at the dashboard has ended it. */
  forced(lease: LeaseInfo): void {
    const key = keyOf(lease)
    this.#ended.set(key, lease.token)
    this.#happened(lease, 'forced', this.#clock.monotonicMs(), true)
    if (this.#rows.get(key)?.token === lease.token) this.#remove(key)
  }

  /** Someone at the dashboard has given it more time. */
  extended(lease: LeaseInfo, ttlMs: number): void {
    const now = this.#clock.monotonicMs()
    this.#happened(lease, 'extended', now, true)
    const row = this.#rows.get(keyOf(lease))
    if (row?.token !== lease.token) return
    row.endsAtMs = now + ttlMs
    row.latestEndMs = row.endsAtMs
    row.ttlMs = Math.max(row.ttlMs ?? 0, ttlMs)
    if (this.#pending.get(row.key) !== 'set') this.#pending.set(row.key, 'end')
  }

  /** What locks of this process say of themselves: it is exact, and knows also what began and ended between two looks. */
  heard(event: LockEvent): void {
    const atMs = this.#clock.monotonicMs()
    if (event.type === 'renewed' || event.type === 'doubtful') {
      for (const resource of event.resources) {
        const marks = this.#marksOf(resource, event)
        if (marks === undefined) continue
        marks.isHeard = true
        if (event.type === 'renewed') renewedAt(marks, atMs)
        else mark(marks.doubts, atMs)
      }
      return
    }
    if (event.type !== 'granted' && event.type !== 'released' && event.type !== 'lost') return
    const { resources, owner, token } = event
    const type = event.type === 'granted' && event.handedOver ? 'handed over' : event.type
    for (const resource of resources) this.#happened({ resource, owner, token }, type, atMs, true)
  }

  /** Also of a lease that no look has seen yet. */
  #marksOf(resource: string, lease: { readonly owner: string; readonly token: bigint }): Marks | undefined {
    const row = this.#rows.get(resource) ?? this.#rows.get(`${resource}\n${lease.owner}`)
    if (row?.owner === lease.owner && row.token === lease.token) return row.marks
    return this.#histories.marksOf(resource, lease)
  }

  /** The most that was ever left of this lease. */
  longestMs(lease: LeaseInfo): number {
    const row = this.#rows.get(keyOf(lease))
    return row?.token === lease.token ? (row.ttlMs ?? 0) : 0
  }

  figures(): Figures {
    const [now, wallMs] = [this.#clock.monotonicMs(), this.#clock.wallMs()]
    const counted = new Set<string>()
    let waiters: number | undefined
    let oldestMs: number | undefined
    let longestWaitMs: number | undefined
    for (const row of this.#rows.values()) {
      if (!row.offered) oldestMs = Math.max(oldestMs ?? 0, now - row.sinceMs)
      // Those who share a resource have the same ones waiting.
      if (row.waiters === undefined || counted.has(row.resource)) continue
      counted.add(row.resource)
      waiters = (waiters ?? 0) + row.waiters
      for (const { since } of row.line) {
        if (since !== undefined) longestWaitMs = Math.max(longestWaitMs ?? 0, wallMs - since)
      }
    }
    return { leases: this.size, waiters, oldestMs, longestWaitMs }
  }

  history(resource: string): Omit<History, 'why'> {
    const now = this.#clock.monotonicMs()
    const entries = this.#histories.of(resource, now)
    const rows = this.of(resource).filter(({ offered }) => !offered)
    for (const row of rows) {
      const { owner, token, sinceMs } = row
      if (entries.some((entry) => entry.owner === owner && entry.token === String(token))) continue
      const agoMs = Math.round(now - sinceMs)
      entries.unshift({ agoMs, type: 'seen', owner, label: labelOf(owner), token: String(token), exact: false })
    }
    const lives = livesOf(this.#histories.all(resource), rows, now)
    return { resource, entries, lives, line: this.line(resource) }
  }

  /** The leases of one resource, or its offer. */
  of(resource: string): readonly KnownLease[] {
    return [...this.#rows.values()].filter((row) => row.resource === resource)
  }

  /** Those who share a resource have the same line. */
  line(resource: string): LineRow[] {
    return (this.of(resource)[0]?.line ?? []).map(({ owner, since }) => {
      const waitedMs = since === undefined ? null : Math.max(0, Math.round(this.#clock.wallMs() - since))
      return { owner, label: labelOf(owner), waitedMs }
    })
  }

  /** Everything that was not sent yet. */
  changes(): Changes {
    const set: LeaseRow[] = []
    const ends: [string, number | null][] = []
    const gone: string[] = []
    const now = this.#clock.monotonicMs()
    for (const [key, what] of this.#pending) {
      const row = this.#rows.get(key)
      if (row === undefined) gone.push(key)
      else if (what === 'set') set.push(this.#shown(row, now))
      else ends.push([key, this.#shown(row, now).endsInMs])
    }
    this.#pending = new Map()
    return { set, ends, gone }
  }

  /** As they are now; each is read when it is shown. */
  rows(): readonly KnownLease[] {
    return [...this.#rows.values()]
  }

  row(known: KnownLease): LeaseRow {
    return shownRow(known, this.#clock.monotonicMs())
  }

  #shown(row: KnownLease, now: number): LeaseRow {
    row.toldEndMs = row.endsAtMs
    return shownRow(row, now)
  }

  #began(row: KnownLease, before: KnownLease | undefined, now: number): void {
    // What was there at the first look may have been there for long.
    if (this.#looksDone === 0) return
    // An offer is no lease: what was before it is over, and what comes after it is granted.
    if (row.offered) return before === undefined || before.offered ? undefined : this.#over(before, now)
    if (before === undefined || before.offered) return this.#happened(row, 'granted', now)
    const ranOut = before.endsAtMs !== undefined && before.endsAtMs < now
    if (ranOut) this.#happened(before, 'lost', now)
    this.#happened(row, ranOut ? 'granted' : 'handed over', now)
  }

  #over(row: KnownLease, now: number): void {
    if (row.offered) return
    const ranOut = row.endsAtMs !== undefined && row.endsAtMs - now < RAN_OUT_MS
    this.#happened(row, ranOut ? 'lost' : 'released', now)
  }

  #happened(
    { resource, owner, token }: Pick<KnownLease, 'resource' | 'owner' | 'token'>,
    type: HistoryType,
    atMs: number,
    exact = false,
  ): void {
    // What the locks report of it later, before a look has seen it, needs a place.
    const marks = this.#marksOf(resource, { owner, token }) ?? (exact ? noMarks() : undefined)
    const happened = { atMs, type, owner, token, exact, ...given({ marks }) }
    if (this.#histories.add(resource, happened)) this.#noted(resource, happened)
  }

  #remove(key: string): void {
    this.#rows.delete(key)
    this.#pending.set(key, 'gone')
  }
}

function shownRow(row: KnownLease, now: number): LeaseRow {
  const { key, resource, owner, token, offered, endsAtMs, ttlMs, sinceMs, heldExact, waiters } = row
  return {
    resource,
    ...(key === resource ? {} : { key }),
    owner,
    label: labelOf(owner),
    note: ownerParts(owner).note ?? null,
    token: String(token),
    endsInMs: endsAtMs === undefined ? null : Math.round(endsAtMs - now),
    ttlMs: ttlMs === undefined ? null : Math.round(ttlMs),
    heldMs: Math.max(0, Math.round(now - sinceMs)),
    heldExact,
    waiters: waiters ?? null,
    ...(offered ? { offered } : {}),
  }
}

/**
 * A renewal moves the end by a third of the ttl or so. An answer that we read late seems to move it, too, and the next one moves it
 * back: by less, and not beyond the latest end that was seen.
 */
function isRenewal({ latestEndMs, ttlMs = 0 }: KnownLease, endsAtMs: number | undefined): boolean {
  if (latestEndMs === undefined || endsAtMs === undefined) return false
  return endsAtMs - latestEndMs > Math.max(JITTER_MS, ttlMs / 10)
}

function renewedAt(marks: Marks, atMs: number): void {
  marks.renewed++
  mark(marks.renewals, atMs)
}

function isSameLine(one: readonly InLine[], other: readonly InLine[]): boolean {
  return one.length === other.length && one.every(({ owner }, place) => owner === other[place]!.owner)
}

function hasMoved({ endsAtMs, toldEndMs }: KnownLease): boolean {
  if (endsAtMs === undefined || toldEndMs === undefined) return endsAtMs !== toldEndMs
  return Math.abs(endsAtMs - toldEndMs) > JITTER_MS
}

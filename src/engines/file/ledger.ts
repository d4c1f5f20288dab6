import type { MachineClock } from '../../clock.ts'
import type { LeaseInfo, LeaseRef, LeaseRequest } from '../../engine.ts'
import { Counter } from './counter.ts'
import type { Database } from './database.ts'
import { Judge, type LeaseRow, type TicketRow } from './judge.ts'
import type { Machine } from './machine.ts'

type About = Pick<LeaseRef, 'resources' | 'owner' | 'ttlMs'>

/** Who is in the way: the lease with a token on a resource, or someone with an earlier ticket. */
export type Blocker = (
  | { readonly kind: 'lease'; readonly resource: string; readonly token: number; readonly owner: string }
  | { readonly kind: 'ticket'; readonly number: number }
) & {
  readonly process: string | null
  /** After this time it is worth another look even if nothing happened. */
  readonly remainingMs: number | undefined
}

export type Verdict =
  | { readonly kind: 'granted'; readonly token: number }
  | { readonly kind: 'blocked'; readonly by: Blocker }

/**
 * So long may the first in line leave a free resource alone before it loses its place: it may have died, or be stopped, where
 * we can't see it. Far longer than a wake-up takes, on a machine with too much to do as well: if those who are merely slow lose
 * their place, each of them costs the others that time, and all queue again.
 */
const TURN_MS = 5000

/** What stands in the file, and what may be done with it. Everything here is called within a transaction. */
export class Ledger {
  readonly #database: Database
  readonly #machine: Machine
  readonly #counter: Counter
  readonly #judge: Judge
  /** The process that a lease ends with. */
  readonly #holder: string | null

  constructor(database: Database, machine: Machine, clock: MachineClock, options: { endsWithProcess: boolean }) {
    this.#database = database
    this.#machine = machine
    this.#counter = new Counter(database, machine, clock)
    this.#judge = new Judge(machine, clock)
    this.#holder = options.endsWithProcess ? machine.self : null
  }

  /** All of the resources, unless one is held or someone queues for it. */
  acquire(request: LeaseRequest): Verdict {
    const own = this.#again(request)
    if (own !== undefined) return own
    const { resources, owner } = request
    const lease = this.#blockingLease(resources, owner)
    if (lease !== undefined) return this.#blockedBy(lease)
    return this.#blockedInQueue(resources, Number.MAX_SAFE_INTEGER) ?? this.#grant(request)
  }

  /** The same for one who queues: takes a ticket first, if it has none (any more), and waits only for earlier ones. */
  takeTurn(request: LeaseRequest): Verdict {
    const own = this.#again(request)
    if (own !== undefined) return own
    const { resources, owner } = request
    const number = this.#ticketOf(owner) ?? this.#enter(resources, owner)
    const queued = this.#blockedInQueue(resources, number)
    if (queued !== undefined) return queued
    const lease = this.#blockingLease(resources, owner)
    if (lease !== undefined) return this.#blockedBy(lease)
    this.#drop(number)
    return this.#grant(request)
  }

  /** Is it still there? For a look without a transaction. */
  stands(blocker: Blocker): boolean {
    if (blocker.kind === 'ticket')
      return this.#sql('SELECT 1 FROM ticket WHERE number = ?').get(blocker.number) !== undefined
    const { resource, token } = blocker
    return this.#sql('SELECT 1 FROM lease WHERE resource = ? AND token = ?').get(resource, token) !== undefined
  }

  giveUpTicket(owner: string): void {
    const number = this.#ticketOf(owner)
    if (number !== undefined) this.#drop(number)
  }

  /** False if it is not, or no longer, the owner's. */
  extend({ resources, owner, ttlMs }: About, process: string | null = this.#holder): boolean {
    if (!this.#isHeldBy(resources, owner)) return false
    const now = this.#judge.nowMs()
    for (const resource of resources) {
      this.#sql('UPDATE lease SET renewed_ms = ?, until_ms = ?, boot = ?, process = ? WHERE resource = ?').run(
        now,
        now + ttlMs,
        this.#machine.boot,
        process,
        resource,
      )
    }
    return true
  }

  /** From now on it lasts for its ttl, whatever becomes of this process. */
  leave(lease: About): boolean {
    return this.extend(lease, null)
  }

  release({ resources, owner }: Pick<LeaseRef, 'resources' | 'owner'>): boolean {
    const ours = this.#isHeldBy(resources, owner)
    for (const resource of resources) {
      this.#sql('DELETE FROM lease WHERE resource = ? AND owner = ?').run(resource, owner)
    }
    return ours
  }

  held(resource?: string): LeaseInfo[] {
    const rows =
      resource === undefined
        ? (this.#sql('SELECT * FROM lease ORDER BY resource').all() as unknown as LeaseRow[])
        : [this.#leaseOn(resource)].filter((row) => row !== undefined)
    const now = this.#judge.nowMs()
    return rows
      .filter((row) => !this.#judge.isOver(row))
      .map((row) => ({
        resource: row.resource,
        owner: row.owner,
        token: BigInt(row.token),
        remainingMs: row.until_ms - now,
        heldMs: now - row.since_ms,
        waiters: Number(this.#sql('SELECT count(*) AS n FROM queue WHERE resource = ?').get(row.resource)?.['n']),
      }))
  }

  /** What `NotReserved` asks for. Must be written durably. */
  reserve(): void {
    this.#counter.reserve()
    this.#sweep()
  }

  /** What is over is removed by the next one who wants it. What nobody wants any more would stay for ever. */
  #sweep(): void {
    for (const row of this.#sql('SELECT * FROM lease').all() as unknown as readonly LeaseRow[]) {
      if (this.#judge.isOver(row)) this.#sql('DELETE FROM lease WHERE resource = ?').run(row.resource)
    }
    for (const row of this.#sql('SELECT * FROM ticket').all() as unknown as readonly TicketRow[]) {
      if (this.#judge.hasLeft(row)) this.#drop(row.number)
    }
  }

  #grant({ resources, owner, ttlMs }: LeaseRequest): Verdict {
    const token = this.#counter.next()
    const now = this.#judge.nowMs()
    const { boot } = this.#machine
    for (const resource of resources) {
      this.#sql('INSERT INTO lease VALUES (?, ?, ?, ?, ?, ?, ?, ?)').run(
        resource,
        owner,
        token,
        boot,
        now,
        now,
        now + ttlMs,
        this.#holder,
      )
    }
    return { kind: 'granted', token }
  }

  /** An acquire that is sent twice is granted once. Its time counts from the second. */
  #again(request: LeaseRequest): Verdict | undefined {
    const row = this.#leaseOn(request.resources[0]!)
    if (row?.owner !== request.owner || !this.extend(request)) return undefined
    return { kind: 'granted', token: row.token }
  }

  #isHeldBy(resources: readonly string[], owner: string): boolean {
    return resources.every((resource) => {
      const row = this.#leaseOn(resource)
      return row?.owner === owner && !this.#judge.isOver(row)
    })
  }

  /** The one that lasts longest; those that are over are removed. */
  #blockingLease(resources: readonly string[], owner: string): LeaseRow | undefined {
    let blocking: LeaseRow | undefined
    for (const resource of resources) {
      const row = this.#leaseOn(resource)
      if (row === undefined) continue
      // A part of a lease of our own, which is no lease, must not stay either.
      if (row.owner === owner || this.#judge.isOver(row))
        this.#sql('DELETE FROM lease WHERE resource = ?').run(resource)
      else if (row.until_ms > (blocking?.until_ms ?? -Infinity)) blocking = row
    }
    return blocking
  }

  #blockedInQueue(resources: readonly string[], number: number): Verdict | undefined {
    for (;;) {
      const ticket = this.#blockingTicket(resources, number)
      if (ticket === undefined) return undefined
      const remainingMs = this.#hurry(ticket)
      // Otherwise someone has just lost its place: it may have been the one.
      if (remainingMs !== 0) {
        return { kind: 'blocked', by: { kind: 'ticket', number: ticket.number, process: ticket.process, remainingMs } }
      }
    }
  }

  /** The last one before us in any of the lines; those who are gone lose their place. */
  #blockingTicket(resources: readonly string[], before: number): TicketRow | undefined {
    const sql = this.#sql(
      'SELECT ticket.* FROM queue JOIN ticket USING (number) WHERE resource = ? AND number < ? ORDER BY number DESC LIMIT 1',
    )
    let nearest: TicketRow | undefined
    for (const resource of resources) {
      let row = sql.get(resource, before) as TicketRow | undefined
      while (row !== undefined && this.#judge.hasLeft(row)) {
        this.#drop(row.number)
        row = sql.get(resource, before) as TicketRow | undefined
      }
      if (row !== undefined && row.number > (nearest?.number ?? 0)) nearest = row
    }
    return nearest
  }

  /**
   * Finds the one whom the owner of this ticket waits for in the end. If nothing but its own slowness keeps it from taking
   * its turn, it is called, and after a while it loses its place; at once if it is stopped. Answers when to look again, if that can be said.
   */
  #hurry(ticket: TicketRow): number | undefined {
    const front = this.#front(ticket)
    const now = this.#judge.nowMs()
    if (this.#blockingLease(this.#namesOf(front.number), '') !== undefined) return undefined
    if (front.called_ms === null) this.#sql('UPDATE ticket SET called_ms = ? WHERE number = ?').run(now, front.number)
    const leftMs = (front.called_ms ?? now) + TURN_MS - now
    if (leftMs > 0 && !this.#judge.isStopped(front)) return leftMs
    this.#drop(front.number)
    return 0
  }

  #front(ticket: TicketRow): TicketRow {
    const sql = this.#sql(
      'SELECT ticket.* FROM queue JOIN ticket USING (number) WHERE resource = ? AND number < ? ORDER BY number LIMIT 1',
    )
    let front = ticket
    for (let moved = true; moved;) {
      moved = false
      for (const name of this.#namesOf(front.number)) {
        const row = sql.get(name, front.number) as TicketRow | undefined
        if (row === undefined) continue
        moved = true
        if (this.#judge.hasLeft(row)) this.#drop(row.number)
        else front = row
      }
    }
    return front
  }

  #blockedBy(row: LeaseRow): Verdict {
    const { resource, token, owner, process } = row
    return {
      kind: 'blocked',
      by: { kind: 'lease', resource, token, owner, process, remainingMs: row.until_ms - this.#judge.nowMs() },
    }
  }

  #enter(resources: readonly string[], owner: string): number {
    const { boot, self } = this.#machine
    this.#sql('INSERT INTO ticket (owner, boot, entered_ms, process) VALUES (?, ?, ?, ?)').run(
      owner,
      boot,
      this.#judge.nowMs(),
      self,
    )
    const number = this.#ticketOf(owner)!
    for (const resource of resources) this.#sql('INSERT INTO queue VALUES (?, ?)').run(resource, number)
    return number
  }

  #drop(number: number): void {
    this.#sql('DELETE FROM ticket WHERE number = ?').run(number)
    this.#sql('DELETE FROM queue WHERE number = ?').run(number)
  }

  #leaseOn(resource: string): LeaseRow | undefined {
    return this.#sql('SELECT * FROM lease WHERE resource = ?').get(resource) as LeaseRow | undefined
  }

  #ticketOf(owner: string): number | undefined {
    return this.#sql('SELECT number FROM ticket WHERE owner = ?').get(owner)?.['number'] as number | undefined
  }

  #namesOf(number: number): string[] {
    return this.#sql('SELECT resource FROM queue WHERE number = ?')
      .all(number)
      .map((row) => String(row['resource']))
  }

  #sql(text: string): ReturnType<Database['statement']> {
    return this.#database.statement(text)
  }
}

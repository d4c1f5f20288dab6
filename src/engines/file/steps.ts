import type { MachineClock } from '../../clock.ts'
import type { LeaseInfo, LeaseRef, LeaseRequest } from '../../engine.ts'
import type { SqliteStatement } from './client.ts'
import { Counter } from './counter.ts'
import type { Database } from './database.ts'
import { inspectFile } from './inspect.ts'
import { Liveness, type StoredLease, type StoredTicket } from './liveness.ts'
import type { Machine } from './machine.ts'

type HeldLease = Pick<LeaseRef, 'resources' | 'owner' | 'ttlMs' | 'keepMs'>

/** What is in the way: the lease on a resource, or an earlier ticket in a queue. */
export type Blocker = (
  | { readonly kind: 'lease'; readonly resource: string; readonly token: number; readonly owner: string }
  | { readonly kind: 'ticket'; readonly number: number }
) & {
  readonly process: string | null
  /** After this time another try may succeed even if nothing happened. Undefined: not known. */
  readonly remainingMs: number | undefined
}

export type AttemptOutcome =
  | { readonly kind: 'granted'; readonly token: number }
  | { readonly kind: 'blocked'; readonly by: Blocker }

/**
 * How long the first in the queue may leave a free resource alone before it loses its place: it may have died, or be stopped,
 * where we cannot see it. Much longer than a wake-up takes, also on a busy machine: if processes that are merely slow lost their
 * place, each of them would cost the others this time, and all would queue again.
 */
const TURN_MS = 5000

/** The earlier tickets for a resource that cannot share it with us: for a reader those of writers, for a writer all. */
const TICKETS_IN_THE_WAY = `
  SELECT ticket.* FROM queue JOIN ticket USING (number) WHERE resource = ? AND number < ? AND NOT (shared AND ?)`

/** The steps on the tables of the file. Every method but `stands` is called within a transaction. */
export class FileSteps {
  readonly #database: Database
  readonly #machine: Machine
  readonly #clock: MachineClock
  readonly #counter: Counter
  readonly #liveness: Liveness
  /** The process whose end also ends the lease. */
  readonly #holder: string | null

  constructor(database: Database, machine: Machine, clock: MachineClock, options: { endsWithProcess: boolean }) {
    this.#database = database
    this.#machine = machine
    this.#clock = clock
    this.#counter = new Counter(database, machine, clock)
    this.#liveness = new Liveness(machine, clock)
    this.#holder = options.endsWithProcess ? machine.self : null
  }

  /** Takes all of the resources, unless one is held or queued for by someone who cannot share it with us. */
  acquire(request: LeaseRequest): AttemptOutcome {
    const own = this.#again(request)
    if (own !== undefined) return own
    const { resources, owner, shared = false } = request
    const lease = this.#blockingLease(resources, owner, shared)
    if (lease !== undefined) return this.#blockedBy(lease)
    return this.#blockedInQueue(resources, Number.MAX_SAFE_INTEGER, shared) ?? this.#grant(request)
  }

  /**
   * The same for a waiter: takes a ticket first, unless it has one, and is blocked by earlier tickets only. A new ticket counts from
   * `sinceMs` of the machine's clock as this process reads it, by default from now.
   */
  takeTurn(request: LeaseRequest, sinceMs?: number): AttemptOutcome {
    const own = this.#again(request)
    if (own !== undefined) return own
    const { resources, owner, shared = false } = request
    const number = this.#ticketOf(owner) ?? this.#enter(request, sinceMs)
    const queued = this.#blockedInQueue(resources, number, shared)
    if (queued !== undefined) return queued
    const lease = this.#blockingLease(resources, owner, shared)
    if (lease !== undefined) return this.#blockedBy(lease)
    this.#drop(number)
    return this.#grant(request)
  }

  /** Whether the blocker is still there. Reads without a transaction. */
  stands(blocker: Blocker): boolean {
    if (blocker.kind === 'ticket') return this.#hasTicket(blocker.number)
    const { resource, token } = blocker
    return this.#sql('SELECT 1 FROM lease WHERE resource = ? AND token = ?').get(resource, token) !== undefined
  }

  giveUpTicket(owner: string): void {
    const number = this.#ticketOf(owner)
    if (number !== undefined) this.#drop(number)
  }

  /** False if the owner does not hold the lease, or no longer does. */
  extend({ resources, owner, ttlMs, keepMs = 0 }: HeldLease, process = keepMs > 0 ? null : this.#holder): boolean {
    if (!this.#isHeldBy(resources, owner)) return false
    const now = this.#liveness.nowMs()
    for (const resource of resources) {
      this.#sql(
        'UPDATE lease SET renewed_ms = ?, until_ms = ?, boot = ?, process = ? WHERE resource = ? AND owner = ?',
      ).run(now, now + ttlMs, this.#machine.boot, process, resource, owner)
    }
    return true
  }

  /** From now on the lease lasts for its ttl, also if this process ends. */
  leave(lease: HeldLease): boolean {
    return this.extend(lease, null)
  }

  release({ resources, owner }: Pick<LeaseRef, 'resources' | 'owner'>): boolean {
    const ours = this.#isHeldBy(resources, owner)
    for (const resource of resources) this.#remove(resource, owner)
    return ours
  }

  /** Undefined if the owner does not hold the lease, or no longer does. */
  adopt({ resources, owner }: LeaseRef, next: LeaseRequest): AttemptOutcome | undefined {
    if (!this.#isHeldBy(resources, owner) || resources.some((name) => this.#leaseOf(name, owner)?.shared))
      return undefined
    this.release({ resources, owner })
    return this.#grant(next)
  }

  held(resource?: string): LeaseInfo[] {
    return inspectFile(this.#database, this.#liveness, this.#clock, resource)
  }

  /** To be called after `NotReserved`. Must be written durably. */
  reserve(): void {
    this.#counter.reserve()
    this.#sweep()
  }

  /** The next one who wants a resource removes an ended lease on it. One that nobody wants would stay forever. */
  #sweep(): void {
    for (const row of this.#sql('SELECT * FROM lease').all() as unknown as readonly StoredLease[]) {
      if (this.#liveness.isOver(row)) this.#remove(row.resource, row.owner)
    }
    for (const row of this.#sql('SELECT * FROM ticket').all() as unknown as readonly StoredTicket[]) {
      if (this.#liveness.hasLeft(row)) this.#drop(row.number)
    }
  }

  #grant({ resources, owner, ttlMs, keepMs = 0, shared = false }: LeaseRequest): AttemptOutcome {
    const token = (shared ? this.#tokenOfReaders(resources) : undefined) ?? this.#counter.next()
    const now = this.#liveness.nowMs()
    const { boot } = this.#machine
    for (const resource of resources) {
      this.#sql('INSERT INTO lease VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)').run(
        resource,
        owner,
        Number(shared),
        token,
        boot,
        now,
        now,
        now + ttlMs,
        keepMs > 0 ? null : this.#holder,
      )
    }
    return { kind: 'granted', token }
  }

  /**
   * A reader that joins others gets their token, because there was no writer in between. With a greater one of its own, a guard would
   * take the others for stale. Undefined if one of the resources has no reader.
   */
  #tokenOfReaders(resources: readonly string[]): number | undefined {
    const tokens = resources.map((resource) => Math.max(0, ...this.#leasesOn(resource).map(({ token }) => token)))
    return tokens.includes(0) ? undefined : Math.max(...tokens)
  }

  /** A request that is sent twice is granted once. Its ttl counts from the second. */
  #again(request: LeaseRequest): AttemptOutcome | undefined {
    const row = this.#leaseOf(request.resources[0]!, request.owner)
    if (row === undefined || !this.extend(request)) return undefined
    return { kind: 'granted', token: row.token }
  }

  #isHeldBy(resources: readonly string[], owner: string): boolean {
    return resources.every((resource) => {
      const row = this.#leaseOf(resource, owner)
      return row !== undefined && !this.#liveness.isOver(row)
    })
  }

  /** The lease in the way that lasts longest; ended ones are removed. */
  #blockingLease(resources: readonly string[], owner: string, shared: boolean): StoredLease | undefined {
    let blocking: StoredLease | undefined
    for (const row of resources.flatMap((resource) => this.#leasesOn(resource))) {
      // An incomplete lease of our own must not stay either.
      if (row.owner === owner || this.#liveness.isOver(row)) this.#remove(row.resource, row.owner)
      else if (!(shared && row.shared) && row.until_ms > (blocking?.until_ms ?? -Infinity)) blocking = row
    }
    return blocking
  }

  #blockedInQueue(resources: readonly string[], number: number, shared: boolean): AttemptOutcome | undefined {
    for (;;) {
      const ticket = this.#blockingTicket(resources, number, shared)
      if (ticket === undefined) return undefined
      const remainingMs = this.#hurry(ticket)
      // Zero: a ticket has just lost its place, and it may have been the one in the way.
      if (remainingMs !== 0) {
        return { kind: 'blocked', by: { kind: 'ticket', number: ticket.number, process: ticket.process, remainingMs } }
      }
    }
  }

  /** The last ticket in the way before this one in any of the queues; tickets of dead processes are removed. */
  #blockingTicket(resources: readonly string[], before: number, shared: boolean): StoredTicket | undefined {
    const sql = this.#sql(`${TICKETS_IN_THE_WAY} ORDER BY number DESC LIMIT 1`)
    const last = (resource: string): StoredTicket | undefined =>
      sql.get(resource, before, Number(shared)) as StoredTicket | undefined
    let nearest: StoredTicket | undefined
    for (const resource of resources) {
      let row = last(resource)
      while (row !== undefined && this.#liveness.hasLeft(row)) {
        this.#drop(row.number)
        row = last(resource)
      }
      if (row !== undefined && row.number > (nearest?.number ?? -Infinity)) nearest = row
    }
    return nearest
  }

  /**
   * Finds the ticket that the owner of this one waits for in the end. If no lease is in its way, it is called: it loses
   * its place if it does not take its turn in time, or at once if its process is stopped. Returns when to look again, if known.
   */
  #hurry(ticket: StoredTicket): number | undefined {
    const front = this.#front(ticket)
    const now = this.#liveness.nowMs()
    if (this.#blockingLease(this.#namesOf(front.number), '', front.shared === 1) !== undefined) return undefined
    if (front.called_ms === null) this.#sql('UPDATE ticket SET called_ms = ? WHERE number = ?').run(now, front.number)
    const leftMs = (front.called_ms ?? now) + TURN_MS - now
    if (leftMs > 0 && !this.#liveness.isStopped(front)) return leftMs
    this.#drop(front.number)
    return 0
  }

  #front(ticket: StoredTicket): StoredTicket {
    const sql = this.#sql(`${TICKETS_IN_THE_WAY} ORDER BY number LIMIT 1`)
    let front = ticket
    for (let moved = true; moved;) {
      moved = false
      for (const name of this.#namesOf(front.number)) {
        const row = sql.get(name, front.number, front.shared) as StoredTicket | undefined
        if (row === undefined) continue
        moved = true
        if (this.#liveness.hasLeft(row)) this.#drop(row.number)
        else front = row
      }
    }
    return front
  }

  #blockedBy(row: StoredLease): AttemptOutcome {
    const { resource, token, owner, process } = row
    return {
      kind: 'blocked',
      by: { kind: 'lease', resource, token, owner, process, remainingMs: row.until_ms - this.#liveness.nowMs() },
    }
  }

  #enter({ resources, owner, shared = false }: LeaseRequest, sinceMs?: number): number {
    const { boot, self, offsetMs } = this.#machine
    const now = this.#liveness.nowMs()
    let number = Math.floor((sinceMs === undefined ? now : sinceMs - offsetMs) * 1000)
    while (this.#hasTicket(number)) number++
    this.#sql('INSERT INTO ticket VALUES (?, ?, ?, ?, ?, NULL, ?)').run(number, owner, Number(shared), boot, now, self)
    for (const resource of resources) {
      this.#sql('INSERT INTO queue VALUES (?, ?)').run(resource, number)
      // A waiter that was called comes later now, and is called again.
      this.#sql(
        'UPDATE ticket SET called_ms = NULL WHERE number IN (SELECT number FROM queue WHERE resource = ? AND number > ?)',
      ).run(resource, number)
    }
    return number
  }

  #drop(number: number): void {
    this.#sql('DELETE FROM ticket WHERE number = ?').run(number)
    this.#sql('DELETE FROM queue WHERE number = ?').run(number)
  }

  #remove(resource: string, owner: string): void {
    this.#sql('DELETE FROM lease WHERE resource = ? AND owner = ?').run(resource, owner)
  }

  #leasesOn(resource: string): readonly StoredLease[] {
    const sql = this.#sql('SELECT * FROM lease WHERE resource = ? ORDER BY token')
    return sql.all(resource) as unknown as readonly StoredLease[]
  }

  #leaseOf(resource: string, owner: string): StoredLease | undefined {
    const sql = this.#sql('SELECT * FROM lease WHERE resource = ? AND owner = ?')
    return sql.get(resource, owner) as StoredLease | undefined
  }

  #hasTicket(number: number): boolean {
    return this.#sql('SELECT 1 FROM ticket WHERE number = ?').get(number) !== undefined
  }

  #ticketOf(owner: string): number | undefined {
    return this.#sql('SELECT number FROM ticket WHERE owner = ?').get(owner)?.['number'] as number | undefined
  }

  #namesOf(number: number): string[] {
    return this.#sql('SELECT resource FROM queue WHERE number = ?')
      .all(number)
      .map((row) => String(row['resource']))
  }

  #sql(text: string): SqliteStatement {
    return this.#database.statement(text)
  }
}

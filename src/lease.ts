import { elapsedMs, type Clock, type Instant } from './clock.ts'
import { durationMs, type Duration } from './duration.ts'
import type { EngineLimits, LeaseRef } from './engine.ts'
import { LeaseLostError, type LossReason } from './errors.ts'

/** A grant of one or several resources, for a time. Renewed in the background until it is released or lost. */
export class Lease implements AsyncDisposable {
  readonly resources: readonly string[]
  /** The unique id of this acquisition. */
  readonly owner: string
  /** The fencing token: strictly greater for every later grant of the same resource. */
  readonly token: bigint
  readonly #record: LeaseRecord
  readonly #desk: LeaseDesk

  /** @internal */
  constructor(record: LeaseRecord, desk: LeaseDesk) {
    this.resources = record.resources
    this.owner = record.owner
    this.token = record.token
    this.#record = record
    this.#desk = desk
  }

  /** The identity of the engine that granted it: tokens of different engines can't be compared. */
  get engine(): string {
    return this.#desk.identity
  }

  /** Aborts before validity ends. Its reason is a `LeaseLostError` that says why. */
  get signal(): AbortSignal {
    return this.#record.signal
  }

  /** Milliseconds of validity left, computed now; 0 when the lease is over. */
  remaining(): number {
    return this.#record.remainingMs()
  }

  /** Computed now, never a stored flag: true also means that the clock has been looked at. */
  get held(): boolean {
    return this.#record.remainingMs() > 0
  }

  /** It was given back by `release()`: not a loss. */
  get released(): boolean {
    return this.#record.over === 'released'
  }

  /** Call it right before a side effect: timers fire late in a stalled process, this does not. */
  assertHeld(): void {
    if (this.held) return
    throw new LeaseLostError(this.resources, this.#record.over ?? 'expired')
  }

  /** Renews now, for the given time from now on. Rejects with `LeaseLostError`, or `EngineError` when it stays unknown. */
  async extend(ttl: Duration = this.#record.ttlMs): Promise<void> {
    await this.#desk.extend(this.#record, ttlOf(ttl, this.#desk.limits))
  }

  /** True if it was still ours. Calling it again gives the same answer. */
  release(): Promise<boolean> {
    return this.#desk.release(this.#record)
  }

  /** For `await using`: releases; a failure to do so is an event, since it must not replace the block's own error. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => undefined)
  }
}

/** A shorter lease could not be renewed three times over a network before it ends. */
const MIN_TTL_MS = 50

/** A ttl that the engine grants; where the engine could be told to grant others, the error says how. */
export function ttlOf(ttl: unknown, limits: EngineLimits): number {
  const minMs = shortestTtlMs(limits)
  try {
    return durationMs(ttl, 'ttl', { minMs, maxMs: limits.maxTtlMs })
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    const tooShort = durationMs(ttl, 'ttl', { minMs: -Infinity, maxMs: Infinity }) < minMs
    const hint = tooShort ? limits.shorter : limits.longer
    if (hint === undefined) throw error
    throw new RangeError(`${error.message}; ${hint}`)
  }
}

export function shortestTtlMs({ minTtlMs = MIN_TTL_MS }: EngineLimits): number {
  return Math.max(minTtlMs, MIN_TTL_MS)
}

/** Where leases are renewed and given back. */
export interface LeaseDesk {
  readonly identity: string
  readonly limits: EngineLimits
  extend(record: LeaseRecord, ttlMs: number): Promise<void>
  release(record: LeaseRecord): Promise<boolean>
}

/** Of a run of hand-overs within this process: how many came before, and when the first one was. */
export interface Chain {
  readonly count: number
  readonly sinceMs: number
}

/** What we know of a lease. */
export class LeaseRecord implements LeaseRef {
  readonly resources: readonly string[]
  readonly owner: string
  readonly token: bigint
  readonly chain: Chain
  ttlMs: number
  /** Why it is over; undefined while it is not. */
  over: LossReason | undefined
  /** The last renewal that could not be proved, until one is. */
  doubt: Error | undefined
  renew: boolean
  /**
   * The lease in the user's hands, until the first renewal: from then on only a registry knows it, so that one which the
   * user has dropped can be garbage-collected and stops being renewed. Most leases are over by then and never get there:
   * registering costs more than all the rest.
   */
  handle: Lease | undefined
  /** When the next renewal is due, counted from the start of the current validity. */
  renewAfterMs = 0
  /** The extension on its way: two at once could land in the wrong order and leave the shorter ttl on the server. */
  extending: Promise<unknown> | undefined
  releasing: Promise<boolean> | undefined
  readonly #clock: Clock
  readonly #limits: EngineLimits
  readonly #heldSince: Instant
  readonly #maxHoldMs: number
  #since: Instant
  #validMs: number
  #controller: AbortController | undefined

  constructor(
    ref: LeaseRef,
    since: Instant,
    terms: { clock: Clock; limits: EngineLimits; renew: boolean; maxHoldMs: number; chain: Chain },
  ) {
    this.resources = ref.resources
    this.owner = ref.owner
    this.token = ref.token
    this.ttlMs = ref.ttlMs
    this.chain = terms.chain
    this.renew = terms.renew
    this.#clock = terms.clock
    this.#limits = terms.limits
    this.#heldSince = since
    this.#maxHoldMs = terms.maxHoldMs
    this.#since = since
    this.#validMs = ref.ttlMs - terms.limits.driftMs(ref.ttlMs)
    this.renewAfterMs = ref.ttlMs / 3
  }

  remainingMs(): number {
    if (this.over !== undefined) return 0
    return Math.max(0, Math.min(this.#validMs - this.elapsedMs(), this.holdLeftMs()))
  }

  /** Since the start of the current validity. */
  elapsedMs(): number {
    return elapsedMs(this.#clock, this.#since)
  }

  holdLeftMs(): number {
    return this.#maxHoldMs === Infinity ? Infinity : this.#maxHoldMs - elapsedMs(this.#clock, this.#heldSince)
  }

  /** A renewal that began at `since` has been proved. */
  renewed(since: Instant, ttlMs: number): void {
    this.ttlMs = ttlMs
    this.#since = since
    this.#validMs = ttlMs - this.#limits.driftMs(ttlMs)
    this.renewAfterMs = ttlMs / 3
    this.doubt = undefined
  }

  /**
   * A change of ttl is on its way. If it shortens the lease and its answer gets lost, the server already counts the
   * shorter time, so from here on we count whichever ends first.
   */
  mayEndAt(since: Instant, ttlMs: number): void {
    const validMs = ttlMs - this.#limits.driftMs(ttlMs)
    if (validMs - elapsedMs(this.#clock, since) >= this.#validMs - this.elapsedMs()) return
    this.#since = since
    this.#validMs = validMs
  }

  /** Made on first use: a controller is the most expensive part of a lease. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.over !== undefined) this.#controller.abort(new LeaseLostError(this.resources, this.over))
    }
    return this.#controller.signal
  }

  heldMs(): number {
    return elapsedMs(this.#clock, this.#heldSince)
  }

  end(reason: LossReason, cause?: unknown): void {
    this.over = reason
    this.handle = undefined
    this.#controller?.abort(new LeaseLostError(this.resources, reason, cause))
  }
}

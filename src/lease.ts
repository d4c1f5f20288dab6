import { optionsOrThrow, signalOrThrow } from './arguments.ts'
import { durationMs, type Duration } from './duration.ts'
import type { EngineLimits } from './engine.ts'
import { LeaseLostError, named, type LossReason } from './errors.ts'
import type { Holdings } from './holdings.ts'
import type { LeaseRecord } from './lease-record.ts'
import { ownerParts } from './owner.ts'

/** A lease as JSON: who holds what, and for how long, at the moment in which it was written. */
export interface LeaseJson {
  readonly resources: readonly string[]
  readonly owner: string
  /** In decimal digits, because JSON has no whole numbers of that size. */
  readonly token: string
  /** The identity of the engine that granted it. */
  readonly engine: string
  readonly shared: boolean
  readonly held: boolean
  /** Why it is over. Absent while it is not. */
  readonly over?: LossReason
  /** Whole milliseconds of validity left. */
  readonly remainingMs: number
  readonly ttlMs: number
}

/**
 * `doubtful`: the last renewal failed, or one is overdue by a sixth of the ttl; the lease is still valid by our clock, but
 * nobody has confirmed that lately. A lease that is not renewed is never in doubt.
 */
export type LeaseState = 'held' | 'doubtful' | 'over'

/** A grant of one or several resources, for a time. Renewed in the background until it is released or lost. */
export class Lease implements AsyncDisposable {
  /** The names of the resources, sorted. */
  readonly resources: readonly string[]
  /** The unique id of this acquisition. */
  readonly owner: string
  /** Whether others may hold it at the same time. */
  readonly shared: boolean
  /**
   * The fencing token: every later grant of the same resource has a greater one, as long as the engine keeps its counters. Only those
   * who share the resource may have the same one.
   */
  readonly token: bigint
  readonly #record: LeaseRecord
  readonly #holdings: Holdings
  /** The lease of a call around the one that got this; its end is the end of this one too. */
  readonly #isJoined: boolean
  #left: Promise<boolean> | undefined

  /** @internal */
  constructor(record: LeaseRecord, holdings: Holdings, isJoined = false) {
    this.resources = record.resources
    this.owner = record.owner
    this.token = record.token
    this.shared = record.shared
    this.#record = record
    this.#holdings = holdings
    this.#isJoined = isJoined
  }

  /** @internal The same lease for a call inside of the one that holds it: releasing it there ends only that use of it. */
  join(): Lease {
    return new Lease(this.#record, this.#holdings, true)
  }

  /** The identity of the engine that granted it: tokens of different engines cannot be compared. */
  get engine(): string {
    return this.#holdings.identity
  }

  /**
   * Aborts before validity ends. That a lease was taken away earlier is noticed at the next renewal. The reason of the signal is
   * a `LeaseLostError` that says why; for a leader whose campaign was ended, it is the reason of the campaign's signal. Once
   * the signal was read, the lease is renewed even after the lease object was garbage-collected, because your program may
   * still rely on the signal.
   */
  get signal(): AbortSignal {
    return this.#record.signal
  }

  /** Milliseconds of validity left, computed now; 0 when the lease is over. */
  remaining(): number {
    return this.#left === undefined ? this.#record.remainingMs() : 0
  }

  /** Whether the lease is valid now. Computed from the clock at each call, never a stored flag. */
  get held(): boolean {
    return this.remaining() > 0
  }

  /** Whether it is valid, and whether its last renewal says so. Computed from the clock at each call. */
  get state(): LeaseState {
    if (!this.held) return 'over'
    return this.#record.isDoubtful ? 'doubtful' : 'held'
  }

  /**
   * Resolves when the lease is not in doubt: at once, or else when a renewal has proved it, for which it asks at once. Rejects
   * with `LeaseLostError` when the lease is over, and with the reason of the signal when that aborts.
   */
  proved(options: { signal?: AbortSignal } = {}): Promise<void> {
    const proof = this.#proved(options)
    // A program that has gone on without the answer must not end because of it.
    proof.catch(() => undefined)
    return proof
  }

  async #proved(options: { signal?: AbortSignal }): Promise<void> {
    optionsOrThrow(options, ['signal'])
    const { signal } = options
    signalOrThrow(signal)
    signal?.throwIfAborted()
    this.assertHeld()
    await this.#holdings.prove(this.#record, signal)
  }

  /** Whether it was given back by `release()`, which is not a loss. */
  get released(): boolean {
    return this.#isJoined ? this.#left !== undefined : this.#record.over === 'released'
  }

  /** Whether it was handed off by `handOff()`, which is not a loss. */
  get moved(): boolean {
    return this.#record.over === 'moved'
  }

  /** What it is held for, as the call said; undefined if it did not. */
  get note(): string | undefined {
    return ownerParts(this.owner).note
  }

  /** Throws `LeaseLostError` unless the lease is valid. Call it before a side effect: in a stalled process the signal is late. */
  assertHeld(): void {
    if (this.held) return
    const { over, doubt } = this.#record
    // One that is over has its cause in the reason of the signal.
    throw new LeaseLostError(this.resources, this.why(), over === undefined ? doubt : undefined)
  }

  /** @internal Why it is over or, while it is not, why it will be if nothing happens before its time is up. */
  why(): LossReason {
    return this.#left === undefined ? this.#record.why() : 'released'
  }

  /**
   * Renews for the given time from now on; in a job of `once`, at least for the rest of `atLeast`. Rejects with `LeaseLostError`,
   * or with `EngineError` when the outcome is unknown.
   */
  async extend(ttl: Duration = this.#record.ttlMs): Promise<void> {
    if (this.#left !== undefined) this.assertHeld()
    await this.#holdings.extend(this.#record, ttlOf(ttl, this.#holdings.limits))
  }

  /** @internal */
  heldMs(): number {
    return this.#record.heldMs()
  }

  /** @internal The job of `once` begins: the time for which its name is kept counts from here. */
  begins(): void {
    this.#record.begins()
  }

  /** @internal Asks the work to end: aborts the signal with this reason, and keeps the lease. */
  stopWork(reason: unknown): void {
    this.#record.stopWork(reason)
  }

  /** It is not renewed any more: it runs out when its time is over, unless it is released or extended before. */
  stopRenewing(): void {
    this.#assertOwn('stopRenewing')
    this.#holdings.stopRenewing(this.#record)
  }

  /**
   * Hands the lease off to another process: it ends here, with the reason `moved`, but not on the servers, where it goes on for its
   * whole ttl, also if this process ends. Resolves with what the other process gives to `locks.adopt` before that time is over.
   * Rejects with `LeaseLostError`, or with `EngineError` when it could not be proved to be ours: then it goes on here as before.
   */
  async handOff(): Promise<LeaseJson> {
    this.#assertOwn('handOff')
    return this.#holdings.handOff(this.#record, this)
  }

  #assertOwn(call: string): void {
    if (!this.#isJoined) return
    throw new RangeError(
      `${call}: expected the lease itself, got that of a call inside of the one that holds it; do it with the outer lease`,
    )
  }

  /** For logs, and for `locks.adopt`. */
  toJSON(): LeaseJson {
    const { resources, owner, engine, shared, held } = this
    const { ttlMs } = this.#record
    const over = this.#left === undefined ? this.#record.over : 'released'
    const remainingMs = Math.floor(this.remaining())
    const token = String(this.token)
    return {
      resources,
      owner,
      token,
      engine,
      shared,
      held,
      ...(over === undefined ? {} : { over }),
      remainingMs,
      ttlMs,
    }
  }

  toString(): string {
    return `lease on ${named(this.resources)} with token ${this.token}`
  }

  /**
   * Gives the lease back. Resolves with true if it was still ours; a second call resolves with the same. The lease of a job of
   * `once` stays taken until `atLeast` is over, also for its own process. A lease that was joined stays with the call that
   * holds it.
   */
  release(): Promise<boolean> {
    if (this.#isJoined) return (this.#left ??= Promise.resolve(this.held))
    return this.#holdings.release(this.#record)
  }

  /** For `await using`: releases. A failure of the release is an event, because it must not replace the block's own error. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => undefined)
  }
}

/** A lease on one permit of a semaphore. */
export class PermitLease extends Lease {
  /** Which one, from 0 on: no two holders have the same at the same time. */
  readonly permit: number

  /** @internal */
  constructor(record: LeaseRecord, holdings: Holdings, permit: number) {
    super(record, holdings)
    this.permit = permit
  }
}

/** A shorter lease could not be renewed three times over a network before its end. */
const MIN_TTL_MS = 50

/** Reads a ttl that the engine grants. Where an option of the engine would allow the given ttl, the error says so. */
export function ttlOf(ttl: unknown, limits: EngineLimits): number {
  if (Number.isInteger(ttl) && (ttl as number) >= shortestTtlMs(limits) && (ttl as number) <= limits.maxTtlMs)
    return ttl as number
  return durationMs(ttl, 'ttl', { ...limits, minMs: shortestTtlMs(limits), maxMs: limits.maxTtlMs })
}

export function shortestTtlMs({ minTtlMs = MIN_TTL_MS }: EngineLimits): number {
  return Math.max(minTtlMs, MIN_TTL_MS)
}

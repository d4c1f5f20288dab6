import { elapsedMs, type Clock, type Instant } from './clock.ts'
import type { EngineLimits, LeaseRef } from './engine.ts'
import { LeaseLostError, type LossReason } from './errors.ts'
import type { Lease } from './lease.ts'
import type { OnDoubt } from './options.ts'

/** A run of hand-overs within this process: how many there were, and when the first lease of the run was granted. */
export interface Chain {
  readonly count: number
  readonly sinceMs: number
}

/** A renewal that has no answer this part of the ttl after it was due is overdue. */
const OVERDUE_PART = 1 / 6

/** What those wait for who ask whether a lease is still ours. */
interface Proof {
  readonly promise: Promise<void>
  readonly resolve: () => void
  readonly reject: (error: LeaseLostError) => void
}

function newProof(): Proof {
  let settle!: Omit<Proof, 'promise'>
  const promise = new Promise<void>((resolve, reject) => (settle = { resolve, reject }))
  return { promise, ...settle }
}

/** What this process knows about a lease. */
export class LeaseRecord implements LeaseRef {
  readonly resources: readonly string[]
  readonly owner: string
  readonly token: bigint
  readonly shared: boolean
  readonly chain: Chain
  readonly onDoubt: OnDoubt
  ttlMs: number
  /** Of the current validity: less than the ttl where a change to a shorter one is under way, or had an unknown outcome. */
  validTtlMs: number
  /** Why it is over; undefined while it is not. */
  over: LossReason | undefined
  /** Why the last renewal could not be proved. Undefined once a renewal is proved. */
  doubt: Error | undefined
  renew: boolean
  /**
   * The user's lease object, until the first renewal. From then on only a registry knows the object, so that it can be
   * garbage-collected when the user has dropped it, and is no longer renewed. Most leases are over before their first renewal
   * and are never registered: registering costs more than all the rest.
   */
  handle: Lease | undefined
  /** When the next renewal is due, counted from the start of the current validity. */
  renewAfterMs = 0
  /** The extension under way. Two at once could arrive in the wrong order and leave the shorter ttl on the server. */
  extending: Promise<unknown> | undefined
  releasing: Promise<boolean> | undefined
  readonly #clock: Clock
  readonly #limits: EngineLimits
  readonly #heldSince: Instant
  readonly #maxHoldMs: number
  readonly #keepMs: number | undefined
  #keepSinceMs: number
  #since: Instant
  #validMs: number
  /** The shortest ttl of an extension whose outcome is unknown: it may still take effect, and shorten what a later one has set. */
  #pendingTtlMs = Infinity
  #controller: AbortController | undefined
  #proof: Proof | undefined

  constructor(
    ref: LeaseRef,
    since: Instant,
    terms: {
      clock: Clock
      limits: EngineLimits
      renew: boolean
      maxHoldMs: number
      onDoubt: OnDoubt
      keepMs?: number | undefined
      chain: Chain
    },
  ) {
    this.resources = ref.resources
    this.owner = ref.owner
    this.token = ref.token
    this.shared = ref.shared ?? false
    this.ttlMs = ref.ttlMs
    this.validTtlMs = ref.ttlMs
    this.chain = terms.chain
    this.renew = terms.renew
    this.onDoubt = terms.onDoubt
    this.#clock = terms.clock
    this.#limits = terms.limits
    this.#heldSince = since
    this.#maxHoldMs = terms.maxHoldMs
    this.#keepMs = terms.keepMs
    this.#keepSinceMs = terms.clock.monotonicMs()
    this.#since = since
    this.#validMs = ref.ttlMs - terms.limits.driftMs(ref.ttlMs)
    this.renewAfterMs = ref.ttlMs / 3
  }

  remainingMs(): number {
    if (this.over !== undefined) return 0
    return Math.max(0, Math.min(this.#validMs - this.elapsedMs(), this.#holdLeftMs()))
  }

  /** Why it is over or, while it is not, why it will be if nothing happens before its time is up. */
  why(): LossReason {
    if (this.over !== undefined) return this.over
    if (this.#holdLeftMs() <= this.#validMs - this.elapsedMs()) return 'max-hold'
    return this.doubt === undefined ? 'expired' : 'unreachable'
  }

  /** Whether the last renewal failed, or is overdue. */
  get isDoubtful(): boolean {
    if (!this.renew) return false
    return this.doubt !== undefined || this.elapsedMs() - this.renewAfterMs > this.ttlMs * OVERDUE_PART
  }

  /** Resolves with the next renewal that is proved. Rejects when the lease is over. */
  nextProof(): Promise<void> {
    this.#proof ??= newProof()
    return this.#proof.promise
  }

  /** Since the start of the current validity. */
  elapsedMs(): number {
    return elapsedMs(this.#clock, this.#since)
  }

  #holdLeftMs(): number {
    return this.#maxHoldMs === Infinity ? Infinity : this.#maxHoldMs - elapsedMs(this.#clock, this.#heldSince)
  }

  /** The process may have stood still since the grant: what is kept counts from here. */
  begins(): void {
    this.#keepSinceMs = this.#clock.monotonicMs()
  }

  /** How long the lease must be kept although the work is done. */
  keepLeftMs(): number {
    return this.#keepMs === undefined ? 0 : this.#keepSinceMs + this.#keepMs - this.#clock.monotonicMs()
  }

  /** A renewal that began at `since` has been proved. */
  renewed(since: Instant, ttlMs: number): void {
    const believedMs = Math.min(ttlMs, this.#pendingTtlMs)
    this.ttlMs = ttlMs
    this.validTtlMs = believedMs
    this.#since = since
    this.#validMs = believedMs - this.#limits.driftMs(believedMs)
    this.renewAfterMs = believedMs / 3
    this.doubt = undefined
    this.#proof?.resolve()
    this.#proof = undefined
  }

  /** Whether an extension took effect is unknown, and so is when it will: there is no bound on how late a request arrives. */
  doubted(cause: Error, ttlMs: number): void {
    this.doubt = cause
    this.#pendingTtlMs = Math.min(this.#pendingTtlMs, ttlMs)
  }

  /**
   * A change of the ttl is under way. If it shortens the lease and its answer gets lost, the server already counts the shorter
   * time, so from now on the earlier of the two ends counts.
   */
  mayEndAt(since: Instant, ttlMs: number): void {
    const validMs = ttlMs - this.#limits.driftMs(ttlMs)
    if (validMs - elapsedMs(this.#clock, since) >= this.#validMs - this.elapsedMs()) return
    this.validTtlMs = ttlMs
    this.#since = since
    this.#validMs = validMs
  }

  /** Made at its first use, because a controller is the most expensive part of a lease. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.over !== undefined) this.#controller.abort(new LeaseLostError(this.resources, this.over))
    }
    return this.#controller.signal
  }

  /** Whether the signal was read: the user may rely on it. */
  get isObserved(): boolean {
    return this.#controller !== undefined
  }

  heldMs(): number {
    return elapsedMs(this.#clock, this.#heldSince)
  }

  /** Aborts the signal although the lease is still held and renewed. The signal cannot report a later loss any more. */
  stopWork(reason: unknown): void {
    this.#controller ??= new AbortController()
    this.#controller.abort(reason)
  }

  end(reason: LossReason, cause?: unknown): void {
    this.over = reason
    this.handle = undefined
    if (this.#controller === undefined && this.#proof === undefined) return
    const error = new LeaseLostError(this.resources, reason, cause)
    this.#controller?.abort(error)
    this.#proof?.reject(error)
    this.#proof = undefined
  }
}

import { elapsedMs, instant, type Clock, type Instant, type Timer } from '../clock.ts'
import { LeaseLostError } from '../errors.ts'
import type { Lease } from '../lease.ts'

/** How many proofs fit into the time for which one of them is good. */
const PROOFS = 3
/** How soon a proof that failed is tried again. */
const AGAIN_MS = 1000

export interface HoldTerms {
  readonly clock: Clock
  /** How long a node that has restarted does not vote. A longer lock is proved again and again. */
  readonly maxTtlMs: number
  readonly driftMs: (ttlMs: number) => number
  /** In `using`: every proof extends the lock for the whole duration. */
  readonly renew: boolean
  /** In `using`: extend it that often, if that is more often than a third of its duration. */
  readonly everyMs?: number
  /** A long lock could not be proved in time. */
  lapsed(error: Error): void
}

/**
 * A lock of this process. A lock that is longer than nodes sit out after a restart could be forgotten by one node after the
 * other, and then be granted to somebody else. So it is proved every third of that time, which also puts it back on nodes that
 * have lost it; and it counts as expired when no proof has come for that time. See docs/decisions/0033-long-locks-are-proved.md.
 */
export class Hold {
  readonly lease: Lease
  readonly #terms: HoldTerms
  #durationMs: number
  /** By the wall clock, on the nodes. */
  #endMs: number
  #proved: Instant
  #timer: Timer | undefined
  #limit: Timer | undefined
  #hasLapsed = false

  constructor(lease: Lease, durationMs: number, terms: HoldTerms) {
    const { clock } = terms
    this.lease = lease
    this.#terms = terms
    this.#durationMs = durationMs
    const agoMs = durationMs - terms.driftMs(durationMs) - lease.remaining()
    this.#proved = { monotonicMs: clock.monotonicMs() - agoMs, wallMs: clock.wallMs() - agoMs }
    this.#endMs = this.#proved.wallMs + durationMs
    this.#schedule()
  }

  /** Whether it may be relied on, as far as its proofs go. */
  get isProved(): boolean {
    return !this.#hasLapsed && (!this.#isLong || this.#proofLeftMs() > 0)
  }

  /** Rejects with `LeaseLostError`, or with `EngineError` when the outcome is unknown. */
  async extend(durationMs: number): Promise<void> {
    this.end()
    try {
      const since = instant(this.#terms.clock)
      await this.lease.extend(durationMs)
      this.#proved = since
      this.#durationMs = durationMs
      this.#endMs = since.wallMs + durationMs
    } finally {
      this.#schedule()
    }
  }

  end(): void {
    this.#timer?.cancel()
    this.#limit?.cancel()
  }

  get #isLong(): boolean {
    return this.#durationMs > this.#terms.maxTtlMs
  }

  #proofLeftMs(): number {
    const { clock, maxTtlMs, driftMs } = this.#terms
    return maxTtlMs - driftMs(maxTtlMs) - elapsedMs(clock, this.#proved)
  }

  #schedule(againMs?: number): void {
    this.end()
    if (this.#hasLapsed || !this.lease.held) return
    const { clock, maxTtlMs, renew, everyMs = Infinity } = this.#terms
    // Nodes that restart after the last proof sit out until it is over.
    const isNeeded = this.#isLong && (renew || this.#endMs - this.#proved.wallMs > maxTtlMs)
    const pauseMs = Math.min(isNeeded ? maxTtlMs / PROOFS : Infinity, renew ? everyMs : Infinity)
    if (pauseMs < Infinity) this.#timer = clock.timer(() => void this.#prove(), againMs ?? pauseMs, true)
    if (isNeeded) this.#limit = clock.timer(() => this.#lapse(new Error(LAPSED)), this.#proofLeftMs(), true)
  }

  async #prove(): Promise<void> {
    if (!this.lease.held) return
    const since = instant(this.#terms.clock)
    try {
      await this.lease.extend(this.#terms.renew ? this.#durationMs : Math.ceil(this.#endMs - since.wallMs))
      this.#proved = since
      this.#schedule()
    } catch (error) {
      if (this.lease.released) return
      if (error instanceof LeaseLostError) this.#lapse(error)
      else this.#schedule(AGAIN_MS)
    }
  }

  /** Of a short lock the lease itself tells. */
  #lapse(error: Error): void {
    this.end()
    if (this.#hasLapsed || !this.#isLong) return
    this.#hasLapsed = true
    this.#terms.lapsed(error)
  }
}

const LAPSED = 'the lock could not be proved for as long as a node that restarts does not vote (maxTtl)'

import { onAbort } from './aborts.ts'
import { Attempts, type Acquisition, type AttemptPlan } from './attempts.ts'
import { elapsedMs, instant, type Instant } from './clock.ts'
import { Deadlines } from './deadlines.ts'
import type { Engine, LeaseRef, Refusal } from './engine.ts'
import { nextCall, type DenialReason } from './events.ts'
import { Fairness } from './fairness.ts'
import { Holdings } from './holdings.ts'
import type { Lease } from './lease.ts'
import { closedError, Lifetime } from './lifetime.ts'
import { Nesting } from './nesting.ts'
import type { LeaseTerms, Settings, WaitTerms } from './options.ts'
import { Pools } from './pools.ts'
import { Queue } from './queue.ts'
import { Waiter } from './waiter.ts'

/** The calls of `acquire` and `tryAcquire`, with read options, and the parts that they share. */
export class Calls {
  readonly engine: Engine
  readonly settings: Settings
  readonly attempts: Attempts
  readonly holdings: Holdings
  readonly fairness: Fairness
  readonly deadlines: Deadlines
  readonly pools = new Pools()
  readonly queue = new Queue<Waiter>((resources, delayMs) => this.pools.freed(resources, delayMs))
  readonly nesting = new Nesting()
  readonly #lifetime = new Lifetime()

  constructor(engine: Engine, settings: Settings) {
    this.engine = engine
    this.settings = settings
    this.attempts = new Attempts(engine, settings, this.#lifetime)
    this.fairness = new Fairness(settings.clock, settings.random)
    this.deadlines = new Deadlines(settings.clock)
    const { attempts, queue, pools, fairness } = this
    this.holdings = new Holdings(engine, settings, { lifetime: this.#lifetime, attempts, queue, pools, fairness })
    if (settings.tell !== undefined) engine.observe?.(settings.tell)
  }

  /** One attempt, without waiting. */
  tryAcquire(resources: readonly string[], terms: OneAttemptTerms): Promise<Lease | Refusal> {
    this.#lifetime.assertOpen(resources)
    const once = new OneAttempt(resources, terms, this)
    this.attempts.attempt(once)
    return once.outcome
  }

  acquire(resources: readonly string[], terms: WaitTerms): Promise<Lease> {
    this.#lifetime.assertOpen(resources)
    const waiter = new Waiter(resources, terms, this)
    this.queue.enter(waiter)
    return waiter.lease
  }

  /** Makes a lease of another process this one's. */
  adopt(lease: LeaseRef, terms: LeaseTerms): Promise<Lease> {
    this.#lifetime.assertOpen(lease.resources)
    const once = new OneAttempt(lease.resources, terms, this)
    void this.attempts.adopt(lease, once)
    // It is never refused: what cannot be adopted is lost.
    return once.outcome as Promise<Lease>
  }

  assertOpen(resources: readonly string[]): void {
    this.#lifetime.assertOpen(resources)
  }

  get isClosed(): boolean {
    return this.#lifetime.isClosed
  }

  /** Ends all waits, releases all leases (those of `once` keep their `atLeast`), closes the engine. */
  async close(): Promise<void> {
    this.#lifetime.close()
    for (const waiter of this.pools.waiters()) waiter.cancel(closedError(waiter.resources), 'closed')
    for (const waiter of this.queue.waiters()) waiter.cancel(closedError(waiter.resources), 'closed')
    this.holdings.close()
    this.deadlines.close()
    await this.#lifetime.idle()
    await this.engine.close()
  }
}

type OneAttemptTerms = LeaseTerms & Pick<Partial<WaitTerms>, 'signal'>

/** One call of `tryAcquire`. */
class OneAttempt implements AttemptPlan {
  readonly call: number
  readonly resources: readonly string[]
  readonly ttlMs: number
  readonly shared: boolean
  readonly note: string | undefined
  readonly keepMs: number | undefined
  readonly contended = false
  readonly outcome: Promise<Lease | Refusal>
  readonly #terms: LeaseTerms
  readonly #calls: Calls
  readonly #began: Instant
  readonly #stopListening: (() => void) | undefined
  #isAborted = false
  #resolve!: (outcome: Lease | Refusal) => void
  #reject!: (reason: unknown) => void

  constructor(resources: readonly string[], terms: OneAttemptTerms, calls: Calls) {
    const { clock, tell } = calls.settings
    this.resources = resources
    this.ttlMs = terms.ttlMs
    this.shared = terms.shared
    this.note = terms.note
    this.keepMs = terms.keepMs
    this.#terms = terms
    this.#calls = calls
    this.#began = instant(clock)
    this.call = tell === undefined ? 0 : nextCall()
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    const { signal } = terms
    if (signal !== undefined) this.#stopListening = onAbort(signal, () => this.#abort(signal.reason))
    tell?.({ type: 'asked', call: this.call, resources, waitMs: 0, shared: terms.shared })
  }

  isWanted(): boolean {
    return !this.#isAborted
  }

  granted(acquisition: Acquisition): void {
    const { holdings } = this.#calls
    if (this.#isAborted) return holdings.giveBack(acquisition)
    this.#stopListening?.()
    this.#resolve(holdings.admit(acquisition, this.#terms, this.#waitedMs()))
  }

  refusedOnce(): void {}

  refused(refusal: Refusal): void {
    if (this.#isAborted) return
    this.#stopListening?.()
    const { call, resources } = this
    this.#calls.settings.tell?.({ type: 'denied', call, resources, reason: 'held', waitedMs: this.#waitedMs() })
    this.#resolve(refusal)
  }

  failed(cause: unknown): void {
    if (!this.#isAborted) this.#deny(this.#calls.isClosed ? 'closed' : 'failed', cause)
  }

  /** Gives up at once for the caller; what is granted after that is given back. */
  #abort(cause: unknown): void {
    this.#isAborted = true
    this.#deny('aborted', cause)
  }

  #deny(reason: DenialReason, cause: unknown): void {
    this.#stopListening?.()
    const { call, resources } = this
    this.#calls.settings.tell?.({ type: 'denied', call, resources, reason, waitedMs: this.#waitedMs(), cause })
    this.#reject(cause)
  }

  #waitedMs(): number {
    return elapsedMs(this.#calls.settings.clock, this.#began)
  }
}

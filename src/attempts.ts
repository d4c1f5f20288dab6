import { elapsedMs, instant, sleep, type Instant } from './clock.ts'
import type { Engine, LeaseRef, Refusal } from './engine.ts'
import { EngineError, engineErrorOf } from './errors.ts'
import type { Chain } from './lease.ts'
import type { Lifetime } from './lifetime.ts'
import type { Settings } from './options.ts'
import { newOwner } from './owner.ts'

/** A lease must come with at least this part of its ttl left, or it would be over before any work is done. */
const LEAST_PART_LEFT = 0.1

/** What a call wants of the servers, and what becomes of it. */
export interface AttemptPlan {
  /** The number of the call. */
  readonly call: number
  readonly resources: readonly string[]
  readonly ttlMs: number
  /** The lease must last this long even if this process ends. */
  readonly keepMs?: number | undefined
  /** A release has woken others with us. */
  readonly contended: boolean
  /** Whether the call still waits for it. */
  isWanted(): boolean
  /** A round was refused. */
  refused?(refusal: Refusal): void
  /** It was granted: called in the same moment in which the locks were seen to be open, so that `close` misses no lease. */
  granted(acquisition: Acquisition): void
}

/** An attempt that was granted: not yet a lease in the hands of a user. */
export interface Acquisition {
  readonly kind: 'acquired'
  readonly call: number
  readonly resources: readonly string[]
  readonly owner: string
  readonly token: bigint
  readonly ttlMs: number
  /** Before the attempt began: validity counts from here. */
  readonly since: Instant
  /** The hand-overs before this one, if it is one. */
  readonly chain: Chain | undefined
}

/** Attempts on the servers, each by an owner of its own. They know nothing of the leases of this process. */
export class Attempts {
  readonly #engine: Engine
  readonly #settings: Settings
  readonly #lifetime: Lifetime

  constructor(engine: Engine, settings: Settings, lifetime: Lifetime) {
    this.#engine = engine
    this.#settings = settings
    this.#lifetime = lifetime
  }

  /** One attempt, and more after a split vote while it is still wanted. Rejects with `EngineError`. */
  async attempt(plan: AttemptPlan): Promise<Acquisition | Refusal> {
    const { call, resources, ttlMs, contended, keepMs = 0 } = plan
    const { clock, random, tell } = this.#settings
    this.#lifetime.begin()
    try {
      for (let round = 0; ; round++) {
        const owner = this.#newOwner()
        const since = instant(clock)
        tell?.({ type: 'attempt', call, resources, owner })
        const request = { resources, owner, ttlMs, round, contended, ...(keepMs > 0 ? { keepMs } : {}) }
        const outcome = await this.#engine.acquire(request).catch((cause: unknown) => this.#failed(plan, owner, cause))
        if (outcome.kind === 'granted') return await this.#settle(plan, acquisition(plan, owner, outcome.token, since))
        const { reason, holder, retryWithinMs } = outcome
        tell?.({ type: 'refused', call, resources, owner, reason, holder })
        plan.refused?.(outcome)
        if (retryWithinMs === undefined || this.#lifetime.isClosed) return outcome
        await sleep(clock, random.fraction() * retryWithinMs)
        // A call that has given up makes no more attempts: those behind it in the queue wait until it is done.
        if (!plan.isWanted()) return outcome
      }
    } finally {
      this.#lifetime.end()
    }
  }

  /** A place in the servers' own queue until the lease is ours. Rejects with `EngineError`, or when the signal aborts. */
  async enqueue(plan: AttemptPlan, signal: AbortSignal): Promise<Acquisition> {
    const { call, resources, ttlMs } = plan
    const owner = this.#newOwner()
    this.#settings.tell?.({ type: 'attempt', call, resources, owner })
    this.#lifetime.begin()
    try {
      const request = { resources, owner, ttlMs }
      const { token, since } = await this.#engine.enqueue!(request, signal).catch((cause: unknown) => {
        // A place that was given up is not a failure of the engine.
        if (signal.aborted) throw cause
        return this.#failed(plan, owner, cause)
      })
      return await this.#settle(plan, acquisition(plan, owner, token, since))
    } finally {
      this.#lifetime.end()
    }
  }

  /**
   * An attempt in one step with the release of a lease. It is refused as `held` if that lease was no longer ours, and as
   * `split` if it was, but nobody has the resource now. Rejects with what the engine rejects with.
   */
  async handOver(lease: LeaseRef, plan: AttemptPlan, chain: Chain): Promise<Acquisition | Refusal> {
    const { call, resources, ttlMs } = plan
    const owner = this.#newOwner()
    const since = instant(this.#settings.clock)
    this.#settings.tell?.({ type: 'attempt', call, resources, owner })
    const outcome = await this.#engine.handOver!(lease, { resources, owner, ttlMs })
    if (outcome.kind === 'refused') return outcome
    const acquired = acquisition(plan, owner, outcome.token, since, chain)
    if (this.#isWorthIt(acquired)) {
      plan.granted(acquired)
      return acquired
    }
    await this.#undo(plan, acquired).catch(() => undefined)
    return { kind: 'refused', reason: 'split' }
  }

  #settle(plan: AttemptPlan, acquired: Acquisition): Acquisition | Promise<never> {
    if (!this.#isWorthIt(acquired)) return this.#undo(plan, acquired)
    plan.granted(acquired)
    return acquired
  }

  /** A grant that took nearly all of its ttl is worth nothing, nor is one after the locks were closed. */
  #isWorthIt({ since, ttlMs }: Acquisition): boolean {
    const leftMs = ttlMs - this.#engine.limits.driftMs(ttlMs) - elapsedMs(this.#settings.clock, since)
    return leftMs > ttlMs * LEAST_PART_LEFT && !this.#lifetime.isClosed
  }

  async #undo(plan: AttemptPlan, acquired: Acquisition): Promise<never> {
    const { resources, owner, ttlMs, since } = acquired
    const tookMs = elapsedMs(this.#settings.clock, since)
    await this.#engine.release(acquired).catch(() => undefined)
    this.#lifetime.assertOpen(resources)
    const message = `granted too late: the attempt took ${Math.round(tookMs)} ms of a ttl of ${ttlMs} ms`
    return this.#failed(plan, owner, new EngineError(message, resources))
  }

  #failed({ call, resources }: AttemptPlan, owner: string, cause: unknown): never {
    // Wrong arguments that only the engine can know: names in different hash slots.
    if (cause instanceof RangeError) throw cause
    const error = engineErrorOf(cause, this.#engine.name, resources)
    this.#settings.tell?.({ type: 'failed', call, resources, owner, cause: error })
    throw error
  }

  #newOwner(): string {
    return newOwner(this.#settings.random, this.#settings.label)
  }
}

function acquisition(
  { call, resources, ttlMs }: AttemptPlan,
  owner: string,
  token: bigint,
  since: Instant,
  chain?: Chain,
): Acquisition {
  return { kind: 'acquired', call, resources, owner, token, ttlMs, since, chain }
}

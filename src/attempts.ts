import { move, whyNotMoved } from './adopt.ts'
import { given } from './arguments.ts'
import { elapsedMs, instant, type Instant } from './clock.ts'
import { inUnits } from './duration.ts'
import type { Engine, Grant, LeaseRef, LeaseRequest, Refusal } from './engine.ts'
import { EngineError, engineErrorOf } from './errors.ts'
import type { Chain } from './lease-record.ts'
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
  readonly shared: boolean
  /** What the lease is for. */
  readonly note?: string | undefined
  /** The lease must last this long even if this process ends. */
  readonly keepMs?: number | undefined
  /** A release has woken others with us. */
  readonly contended: boolean
  /** The call goes on waiting after a refusal. */
  readonly waits?: boolean
  /** After a split vote nothing is tried again: the call goes to the servers' own queue instead. */
  readonly oneRound?: boolean
  /** Whether the call still waits for it. */
  isWanted(): boolean
  /** How long it has waited by now. */
  waitedMs?(): number
  /** It was granted: called in the same moment in which the locks were seen to be open, so that `close` misses no lease. */
  granted(acquisition: Acquisition): void
  /** A round was refused. After the last one of an attempt comes `refused`. */
  refusedOnce(refusal: Refusal): void
  refused(refusal: Refusal): void
  failed(error: unknown): void
  /** In the servers' own queue: they do not answer, or, with undefined, they do again. */
  failing?(failure: EngineError | undefined): void
}

/** An attempt that was granted: not yet a lease in the hands of a user. */
export interface Acquisition {
  readonly kind: 'acquired'
  readonly call: number
  readonly resources: readonly string[]
  readonly owner: string
  readonly token: bigint
  readonly ttlMs: number
  readonly shared: boolean
  /** Before the attempt began: validity counts from here. */
  readonly since: Instant
  /** The hand-overs before this one, if it is one. */
  readonly chain: Chain | undefined
  readonly votes: Grant['votes']
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

  /**
   * One attempt, and more after a split vote while it is still wanted. Ends with `granted`, `refused`, or `failed` (an
   * `EngineError`) of the plan. Written with callbacks: every lease passes here.
   */
  attempt(plan: AttemptPlan): void {
    this.#lifetime.begin()
    this.#round(plan, 0)
  }

  #round(plan: AttemptPlan, round: number): void {
    const { call, resources, ttlMs, shared, contended, waits = false, keepMs = 0 } = plan
    const owner = this.#newOwner(plan)
    const since = instant(this.#settings.clock)
    this.#settings.tell?.({ type: 'attempt', call, resources, owner })
    const request = { resources, owner, ttlMs, shared, round, contended, waits, keepMs }
    this.#ask(request).then(
      (outcome) => {
        if (outcome.kind === 'refused') return this.#refused(plan, round, owner, outcome)
        const acquired = acquisition(plan, owner, outcome, since)
        if (!this.#isWorthIt(acquired)) return this.#undo(plan, acquired).catch((error) => this.#fail(plan, error))
        plan.granted(acquired)
        this.#lifetime.end()
      },
      (cause: unknown) => this.#fail(plan, this.#failure(plan, owner, cause)),
    )
  }

  #ask(request: LeaseRequest): Promise<Grant | Refusal> {
    try {
      return this.#engine.acquire(request)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #refused(plan: AttemptPlan, round: number, owner: string, refusal: Refusal): void {
    const { call, resources } = plan
    const { reason, holder, retryWithinMs, votes } = refusal
    const { clock, random } = this.#settings
    this.#settings.tell?.({ type: 'refused', call, resources, owner, reason, holder, ...given({ votes: votes?.() }) })
    plan.refusedOnce(refusal)
    if (retryWithinMs === undefined || plan.oneRound === true || this.#lifetime.isClosed)
      return this.#end(plan, refusal)
    clock.timer(() => {
      // A call that has given up makes no more attempts: those behind it in the queue wait until it is done.
      if (plan.isWanted()) this.#round(plan, round + 1)
      else this.#end(plan, refusal)
    }, random.fraction() * retryWithinMs)
  }

  #end(plan: AttemptPlan, refusal: Refusal): void {
    plan.refused(refusal)
    this.#lifetime.end()
  }

  #fail(plan: AttemptPlan, error: unknown): void {
    plan.failed(error)
    this.#lifetime.end()
  }

  /**
   * A place in the servers' own queue until the lease is ours. Rejects with `EngineError`, or when the signal aborts. `next`: the call of
   * this process that comes right after this one, for the same resources.
   */
  async enqueue(plan: AttemptPlan, signal: AbortSignal, next: () => AttemptPlan | undefined): Promise<Acquisition> {
    const { call, resources, ttlMs, shared } = plan
    const owner = this.#newOwner(plan)
    this.#settings.tell?.({ type: 'attempt', call, resources, owner })
    this.#lifetime.begin()
    try {
      const hasHeir = (): boolean => {
        const heir = next()
        return heir?.ttlMs === ttlMs && heir.shared === shared
      }
      const failing = (cause: Error | undefined): void =>
        plan.failing?.(cause && engineErrorOf(cause, this.#engine.name, resources))
      const request = { resources, owner, ttlMs, shared, waitedMs: plan.waitedMs?.() ?? 0, hasHeir, failing }
      const waiting = this.#engine.enqueue!(request, signal, () => {
        const next = this.#newOwner(plan)
        this.#settings.tell?.({ type: 'attempt', call, resources, owner: next })
        return next
      })
      const grant = await waiting.catch((cause: unknown) => {
        // A place that was given up is not a failure of the engine.
        if (signal.aborted) throw cause
        throw this.#failure(plan, owner, cause)
      })
      const acquired = acquisition(plan, grant.owner ?? owner, grant, grant.since)
      if (!this.#isWorthIt(acquired)) return await this.#undo(plan, acquired)
      plan.granted(acquired)
      return acquired
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
    const owner = this.#newOwner(plan)
    const since = instant(this.#settings.clock)
    this.#settings.tell?.({ type: 'attempt', call, resources, owner })
    const outcome = await this.#engine.handOver!(lease, { resources, owner, ttlMs, shared: false })
    if (outcome.kind === 'refused') return outcome
    const acquired = acquisition(plan, owner, outcome, since, chain)
    if (this.#isWorthIt(acquired)) {
      plan.granted(acquired)
      return acquired
    }
    await this.#undo(plan, acquired).catch(() => undefined)
    return { kind: 'refused', reason: 'split' }
  }

  /** A lease of another process becomes this one's. Ends with `granted` or `failed` of the plan, as an attempt does. */
  async adopt(lease: LeaseRef, plan: AttemptPlan): Promise<void> {
    const { call, resources, ttlMs } = plan
    const owner = this.#newOwner(plan)
    const since = instant(this.#settings.clock)
    this.#lifetime.begin()
    this.#settings.tell?.({ type: 'attempt', call, resources, owner })
    try {
      const outcome = await move(this.#engine, lease, { resources, owner, ttlMs, shared: false }).catch(
        (cause: unknown) => {
          throw this.#failure(plan, owner, cause)
        },
      )
      if (outcome.kind === 'refused') throw await whyNotMoved(this.#engine, lease, outcome)
      const acquired = acquisition(plan, outcome.owner ?? owner, outcome, since)
      if (!this.#isWorthIt(acquired)) await this.#undo(plan, acquired, () => this.#giveBack(acquired, lease))
      plan.granted(acquired)
    } catch (error) {
      plan.failed(error)
    } finally {
      this.#lifetime.end()
    }
  }

  /** A grant that took nearly all of its ttl is worth nothing, nor is one after the locks were closed. */
  #isWorthIt({ since, ttlMs }: Acquisition): boolean {
    const leftMs = ttlMs - this.#engine.limits.driftMs(ttlMs) - elapsedMs(this.#settings.clock, since)
    return leftMs > ttlMs * LEAST_PART_LEFT && !this.#lifetime.isClosed
  }

  /**
   * What was adopted too late, or into closed locks: its holder may go on, and the ticket is as good as before. Where that fails, it ends
   * with its ttl. It must last without this process, until its holder renews it.
   */
  #giveBack(acquired: Acquisition, { resources, owner, ttlMs }: LeaseRef): Promise<unknown> {
    return move(this.#engine, acquired, { resources, owner, ttlMs, shared: false, keepMs: ttlMs })
  }

  async #undo(
    plan: AttemptPlan,
    acquired: Acquisition,
    undo = (): Promise<unknown> => this.#engine.release(acquired),
  ): Promise<never> {
    const { resources, owner, ttlMs, since } = acquired
    const tookMs = elapsedMs(this.#settings.clock, since)
    await undo().catch(() => undefined)
    this.#lifetime.assertOpen(resources)
    const took = `granted too late: the attempt took ${Math.round(tookMs)} ms of a ttl of ${ttlMs} ms`
    const message = `${took}, and was undone; give it a longer ttl, or let locks.check() say what is slow`
    throw this.#failure(plan, owner, new EngineError(message, resources))
  }

  #failure({ call, resources }: AttemptPlan, owner: string, cause: unknown): Error {
    // Wrong arguments that only the engine can know: names in different hash slots.
    if (cause instanceof RangeError) return cause
    const error = engineErrorOf(cause, this.#engine.name, resources)
    this.#settings.tell?.({ type: 'failed', call, resources, owner, cause: error })
    return error
  }

  #newOwner({ note }: AttemptPlan): string {
    return newOwner(this.#settings.random, this.#settings.label, note)
  }
}

function acquisition(
  { call, resources, ttlMs, shared }: AttemptPlan,
  owner: string,
  { token, votes }: Grant,
  since: Instant,
  chain?: Chain,
): Acquisition {
  return { kind: 'acquired', call, resources, owner, token, ttlMs, shared, since, chain, votes }
}

/** The error of a call that got no answer within its wait. */
export function unanswered(
  engine: Engine,
  { resources, ttlMs }: Pick<AttemptPlan, 'resources' | 'ttlMs'>,
  waitMs: number,
): Error {
  if (engine.unanswered !== undefined) return engine.unanswered({ resources, ttlMs }, waitMs)
  const message = `${engine.name}: no answer within the wait of ${inUnits(waitMs)}; a request may take longer than that`
  return new EngineError(message, resources)
}

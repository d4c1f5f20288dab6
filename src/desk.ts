import { hostname } from 'node:os'
import { elapsedMs, instant, sleep, type Clock, type Instant } from './clock.ts'
import { Deadlines } from './deadlines.ts'
import type { Engine, EngineLimits, Refusal, Release } from './engine.ts'
import { EngineError } from './errors.ts'
import { nextCall, tell, type Tell } from './events.ts'
import { Keeper } from './keeper.ts'
import { Lease, LeaseRecord, type Chain, type LeaseDesk } from './lease.ts'
import type { LeaseTerms, Settings, WaitTerms } from './options.ts'
import { Queue } from './queue.ts'
import type { Random } from './random.ts'
import { Turns } from './turns.ts'
import { Waiter, type Contest, type WaitHost, type Won } from './waiter.ts'

/** A split vote is contended again at once, so often; a rival that keeps winning shows up as the holder instead. */
const SPLIT_ROUNDS = 8
/** Nobody who asks for a lease without waiting waits longer than this between two rounds. */
const SPLIT_PAUSE_MS = 50
/** A lease must come with at least this part of its ttl left, or it would be over before any work is done. */
const LEAST_PART_LEFT = 0.1

/** Where leases are given out and given back: all that `Locks` does not show. */
export class Desk implements WaitHost, LeaseDesk {
  readonly engine: Engine
  readonly clock: Clock
  readonly deadlines: Deadlines
  readonly turns = new Turns()
  readonly random: Random
  readonly observer: Tell | undefined
  readonly #settings: Settings
  readonly #label: string
  readonly #keeper: Keeper
  readonly #queue = new Queue<Waiter>()
  /** The lease of this process on a resource. */
  readonly #here = new Map<string, LeaseRecord>()
  readonly #handles = new FinalizationRegistry<LeaseRecord>((record) => this.#abandoned(record))
  #closed = false
  /** Attempts and releases under way. */
  #busy = 0
  #whenIdle: (() => void) | undefined

  constructor(engine: Engine, settings: Settings) {
    this.engine = engine
    this.clock = settings.clock
    this.deadlines = new Deadlines(settings.clock)
    this.random = settings.random
    const { observe } = settings
    this.observer = observe && ((event) => observe(event, engine.name))
    this.#settings = settings
    this.#label = settings.label ?? `${hostname()}:${process.pid}`
    this.#keeper = new Keeper(engine, settings.clock, this.observer, {
      ended: (record) => this.#ended(record),
      renewing: (record) => this.#register(record),
    })
    if (this.observer !== undefined) engine.observe?.((event) => tell(this.observer!, event))
  }

  /** One attempt, without waiting. */
  async tryAcquire(resources: readonly string[], terms: LeaseTerms): Promise<Lease | Refusal> {
    this.#assertOpen(resources)
    const began = instant(this.clock)
    const call = this.observer === undefined ? 0 : nextCall()
    if (this.observer !== undefined) tell(this.observer, { type: 'asked', call, resources, waitMs: 0 })
    const contest = { call, contended: false, isWanted: () => true }
    const attempt = this.attempt(resources, terms.ttlMs, contest)
    const outcome = await (this.observer === undefined
      ? attempt
      : attempt.catch((cause: unknown) => {
          this.#tellDenied(contest, resources, began, cause)
          throw cause
        }))
    if (outcome.kind === 'won') return this.admit(outcome, terms, elapsedMs(this.clock, began))
    this.#tellDenied(contest, resources, began)
    return outcome
  }

  acquire(resources: readonly string[], terms: WaitTerms): Promise<Lease> {
    this.#assertOpen(resources)
    const waiter = new Waiter(resources, terms, this)
    this.#queue.enter(waiter)
    return waiter.lease
  }

  /** Ends all waits, releases all leases, closes the engine. */
  async close(): Promise<void> {
    this.#closed = true
    for (const waiter of this.#queue.waiters()) {
      waiter.cancel(new EngineError('these locks are closed', waiter.resources, { transient: false }), 'closed')
    }
    for (const record of this.#keeper.records) {
      this.#keeper.end(record, 'closed')
      this.#quietly(record)
    }
    this.#keeper.close()
    this.deadlines.close()
    while (this.#busy > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve))
    await this.engine.close()
  }

  get identity(): string {
    return this.engine.identity
  }

  get limits(): EngineLimits {
    return this.engine.limits
  }

  extend(record: LeaseRecord, ttlMs: number): Promise<void> {
    return this.#keeper.extend(record, ttlMs)
  }

  release(record: LeaseRecord): Promise<boolean> {
    record.releasing ??= this.#release(record)
    return record.releasing
  }

  /** Stops renewing and leaves the lease to run out after `ttlMs`. */
  async leave(lease: Lease, ttlMs: number): Promise<void> {
    const record = this.#here.get(lease.resources[0]!)
    if (record?.owner !== lease.owner) return
    record.renew = false
    try {
      await this.#keeper.leave(record, ttlMs)
    } finally {
      this.#handles.unregister(record)
      record.releasing = Promise.resolve(true)
      const { resources, owner, token } = record
      if (this.#keeper.end(record, 'released') && this.observer !== undefined) {
        tell(this.observer, { type: 'left', resources, owner, token, heldMs: record.heldMs() })
      }
      this.#wakeHeads(record, 0)
    }
  }

  heldHere(resources: readonly string[]): LeaseRecord | undefined {
    for (const resource of resources) {
      const record = this.#here.get(resource)
      if (record !== undefined && record.remainingMs() > 0) return record
    }
    return undefined
  }

  left(waiter: Waiter): void {
    this.#queue.leave(waiter)
    if (this.#queue.heads(waiter.resources).length === 0) this.turns.forget(waiter.resources)
  }

  giveBack(won: Won): void {
    const record = this.#record(won, this.#settings.defaults)
    this.#quietly(record)
  }

  admit(won: Won, terms: LeaseTerms, waitedMs: number): Lease {
    const record = this.#record(won, terms)
    const lease = new Lease(record, this)
    record.handle = lease
    for (const resource of record.resources) this.#here.set(resource, record)
    this.#keeper.add(record)
    if (this.observer !== undefined) {
      const { call, resources, owner, token } = won
      const handedOver = record.chain.count > 0
      tell(this.observer, { type: 'granted', call, resources, owner, token, waitedMs, handedOver })
    }
    return lease
  }

  async attempt(resources: readonly string[], ttlMs: number, contest: Contest): Promise<Won | Refusal> {
    const { call } = contest
    this.#busy++
    try {
      for (let round = 0; ; round++) {
        const owner = this.#newOwner()
        const since = instant(this.clock)
        if (this.observer !== undefined) tell(this.observer, { type: 'attempt', call, resources, owner })
        // In order, so that the first node decides the race; all at once every fourth time, because the first node may
        // be the only one that keeps a dead rival's key.
        const request = { resources, owner, ttlMs, inOrder: round === 0 ? contest.contended : round % 4 !== 0 }
        const outcome = await this.engine.acquire(request).catch((cause: unknown) => this.#failed(call, request, cause))
        if (outcome.kind === 'granted') {
          const won: Won = {
            kind: 'won',
            call,
            resources,
            owner,
            token: outcome.token,
            ttlMs,
            since,
            chain: undefined,
          }
          return this.#worthIt(won) ? won : await this.#undo(won)
        }
        if (this.observer !== undefined) {
          const { reason, holder } = outcome
          tell(this.observer, { type: 'refused', call, resources, owner, reason, holder })
        }
        if (outcome.reason === 'held' || round >= SPLIT_ROUNDS || this.#closed) return outcome
        // Rivals part by waiting up to some attempts' time each, longer every round.
        const tookMs = elapsedMs(this.clock, since)
        const pauseMs = Math.min(tookMs * 2 ** Math.min(round, 4), SPLIT_PAUSE_MS)
        await sleep(this.clock, this.random.fraction() * pauseMs)
        // Who has given up contends no more: those behind it in the line wait until it is done.
        if (!contest.isWanted()) return outcome
      }
    } finally {
      this.#done()
    }
  }

  async enqueue(call: number, resources: readonly string[], ttlMs: number, signal: AbortSignal): Promise<Won> {
    const owner = this.#newOwner()
    if (this.observer !== undefined) tell(this.observer, { type: 'attempt', call, resources, owner })
    const request = { resources, owner, ttlMs, inOrder: false }
    this.#busy++
    try {
      const { token, since } = await this.engine.enqueue!(request, signal).catch((cause: unknown) => {
        // An abandoned place is not a failure of the engine.
        if (signal.aborted) throw cause
        return this.#failed(call, request, cause)
      })
      const won: Won = { kind: 'won', call, resources, owner, token, ttlMs, since, chain: undefined }
      return this.#worthIt(won) ? won : await this.#undo(won)
    } finally {
      this.#done()
    }
  }

  #failed(call: number, request: { resources: readonly string[]; owner: string }, cause: unknown): never {
    // Wrong arguments that only the engine can know: names in different hash slots.
    if (cause instanceof RangeError) throw cause
    const { resources, owner } = request
    const error =
      cause instanceof EngineError
        ? cause
        : new EngineError(`${this.engine.name}: ${cause instanceof Error ? cause.message : String(cause)}`, resources, {
            cause,
            transient: false,
          })
    if (this.observer !== undefined) tell(this.observer, { type: 'failed', call, resources, owner, cause: error })
    throw error
  }

  /** A grant that took so long that it is nearly over is worth nothing, nor is one after the end. */
  #worthIt({ since, ttlMs }: Won): boolean {
    const leftMs = ttlMs - this.engine.limits.driftMs(ttlMs) - elapsedMs(this.clock, since)
    return leftMs > ttlMs * LEAST_PART_LEFT && !this.#closed
  }

  async #undo(won: Won): Promise<never> {
    const tookMs = elapsedMs(this.clock, won.since)
    await this.engine.release(won).catch(() => undefined)
    this.#assertOpen(won.resources)
    const message = `granted too late: the attempt took ${Math.round(tookMs)} ms of a ttl of ${won.ttlMs} ms`
    return this.#failed(won.call, won, new EngineError(message, won.resources))
  }

  async #release(record: LeaseRecord): Promise<boolean> {
    this.#busy++
    this.#handles.unregister(record)
    const wasHeld = this.#keeper.end(record, 'released')
    const heir = wasHeld ? this.#heir(record) : undefined
    const began = this.clock.monotonicMs()
    try {
      const { ours, awaited } =
        heir === undefined ? await this.engine.release(record) : await this.#handOver(record, heir)
      this.#tellReleased(record, ours)
      if (heir === undefined) {
        const tookMs = this.clock.monotonicMs() - began
        this.#wakeHeads(record, awaited > 0 ? this.turns.over(record.resources, awaited, tookMs) : 0)
      }
      return ours
    } catch (error) {
      this.#tellReleased(record, 'unknown', error)
      if (heir === undefined) this.#wakeHeads(record, 0)
      throw error
    } finally {
      this.#done()
    }
  }

  /** The waiter who gets the lease without a detour: first in line for the very same resources, within the bounds. */
  #heir(record: LeaseRecord): Waiter | undefined {
    const { count, timeMs } = this.#settings.handOver
    if (this.engine.handOver === undefined || record.chain.count >= count) return undefined
    if (this.clock.monotonicMs() - record.chain.sinceMs > timeMs) return undefined
    const [head, ...others] = this.#queue.heads(record.resources)
    if (head === undefined || others.length > 0 || !sameNames(head.resources, record.resources)) return undefined
    return head.claim() ? head : undefined
  }

  async #handOver(record: LeaseRecord, heir: Waiter): Promise<Release> {
    const { call, resources } = heir
    const { ttlMs } = heir.terms
    const owner = this.#newOwner()
    const since = instant(this.clock)
    if (this.observer !== undefined) tell(this.observer, { type: 'attempt', call, resources, owner })
    try {
      const outcome = await this.engine.handOver!(record, { resources, owner, ttlMs, inOrder: false })
      if (outcome.kind === 'refused') {
        heir.resume()
        return { ours: false, awaited: 0 }
      }
      const chain = { count: record.chain.count + 1, sinceMs: record.chain.sinceMs }
      const won: Won = { kind: 'won', call, resources, owner, token: outcome.token, ttlMs, since, chain }
      // A late one is not accepted: the heir goes on as if nothing had been offered.
      if (this.#worthIt(won)) heir.accept(won)
      else await this.#undo(won).catch(() => heir.resume())
      return { ours: true, awaited: 0 }
    } catch (error) {
      heir.resume()
      throw error
    }
  }

  #record(won: Won, terms: LeaseTerms): LeaseRecord {
    const chain: Chain = won.chain ?? { count: 0, sinceMs: this.clock.monotonicMs() }
    return new LeaseRecord(won, won.since, {
      clock: this.clock,
      limits: this.engine.limits,
      renew: terms.renew,
      maxHoldMs: terms.maxHoldMs,
      chain,
    })
  }

  #ended(record: LeaseRecord): void {
    for (const resource of record.resources) {
      if (this.#here.get(resource) === record) this.#here.delete(resource)
    }
    // A release wakes the next one itself, once the server has answered.
    if (record.over !== 'released') this.#wakeHeads(record, 0)
  }

  #wakeHeads(record: LeaseRecord, delayMs: number): void {
    for (const waiter of this.#queue.heads(record.resources)) waiter.wake(delayMs)
  }

  #tellReleased(record: LeaseRecord, ours: boolean | 'unknown', error?: unknown): void {
    if (this.observer === undefined) return
    const { resources, owner, token } = record
    const cause = error instanceof Error ? { cause: error } : {}
    tell(this.observer, { type: 'released', resources, owner, token, ours, heldMs: record.heldMs(), ...cause })
  }

  #tellDenied({ call }: Contest, resources: readonly string[], began: Instant, ...failure: [unknown?]): void {
    if (this.observer === undefined) return
    const waitedMs = elapsedMs(this.clock, began)
    if (failure.length === 0) tell(this.observer, { type: 'denied', call, resources, reason: 'held', waitedMs })
    else {
      const reason = this.#closed ? 'closed' : 'failed'
      tell(this.observer, { type: 'denied', call, resources, reason, waitedMs, cause: failure[0] })
    }
  }

  #register(record: LeaseRecord): void {
    if (record.handle === undefined) return
    this.#handles.register(record.handle, record, record)
    record.handle = undefined
  }

  #abandoned(record: LeaseRecord): void {
    if (record.over !== undefined) return
    record.renew = false
    const names = record.resources.join(', ')
    process.emitWarning(`the lease on ${names} was garbage-collected without release(); it is no longer renewed`, {
      type: 'RingfenceWarning',
      code: 'RINGFENCE_ABANDONED',
    })
    this.#keeper.end(record, 'abandoned')
  }

  #newOwner(): string {
    return `${this.random.id()}@${this.#label}`
  }

  #assertOpen(resources: readonly string[]): void {
    if (this.#closed) throw new EngineError('these locks are closed', resources, { transient: false })
  }

  /** A failure is told as an event by #release itself; the lease then ends with its ttl. */
  #quietly(record: LeaseRecord): void {
    this.release(record).catch(() => undefined)
  }

  #done(): void {
    if (--this.#busy === 0) this.#whenIdle?.()
  }
}

/** Both are sorted. */
function sameNames(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((name, index) => name === others[index])
}

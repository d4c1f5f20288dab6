import { onAbort } from './aborts.ts'
import { unanswered, type Acquisition, type AttemptPlan } from './attempts.ts'
import type { Calls } from './calls.ts'
import { elapsedMs, instant, type Instant, type Timer } from './clock.ts'
import type { Deadline } from './deadlines.ts'
import type { Refusal } from './engine.ts'
import { EngineError, HeldError, WaitTimeoutError, type HeldDetails } from './errors.ts'
import type { Use } from './nesting.ts'
import { nextCall, type DenialReason } from './events.ts'
import { closedError } from './lifetime.ts'
import { NOTHING_KNOWN, type Known } from './known.ts'
import type { PermitLease } from './lease.ts'
import type { WaitTerms } from './options.ts'
import type { Permits } from './permits.ts'
import type { Heir } from './pools.ts'
import { Waiter } from './waiter.ts'

/** After this many refusals a call that may wait does so. While one of ten permits is free, it finds one nineteen times of twenty. */
const MOST_TRIES = 32
/** At how many permits the first in line waits at once. Each costs the servers a place in a queue, or a watch. */
const MOST_STANDS = 8
/** Where there are more permits than that, it waits at others after this time. */
const MOVE_MS = 1000
/** How many others it looks at before it moves. */
const TRIES_OF_MOVE = 8
/** What came free elsewhere may not have been alone. */
const TRIES_OF_NEXT = 2
/** While permits go from hand to hand within this process, the servers are left alone for this long. */
const REST_MS = 100

const MOVED = new Error('it waits at another permit')

/** `looked`: in line, and has found none. */
type PermitState = 'in line' | 'looking' | 'looked' | 'first' | 'settled'

/** One call for a permit, from its place in the line of the pool until it has a permit or gives up. */
export class PermitWaiter {
  /** The name of the pool: what the call is about. */
  readonly resources: readonly string[]
  readonly permits: Permits
  readonly terms: WaitTerms
  readonly lease: Promise<PermitLease>
  readonly #call: number
  readonly #calls: Calls
  readonly #began: Instant
  readonly #use: Use | undefined
  readonly #deadline: Deadline | undefined
  readonly #stopListening: (() => void) | undefined
  /** Where the first in line waits on the servers. */
  readonly #stands = new Map<number, Stand>()
  #resolve!: (lease: PermitLease) => void
  #reject!: (reason: unknown) => void
  #state: PermitState = 'in line'
  /** A permit that was released here is being handed over to it, or asked for by it. */
  #isTaking = false
  #known = NOTHING_KNOWN
  #timer: Timer | undefined
  #delay: Timer | undefined

  constructor(permits: Permits, terms: WaitTerms, calls: Calls) {
    const { clock, tell } = calls.settings
    this.permits = permits
    this.resources = [permits.pool]
    this.terms = terms
    this.#calls = calls
    this.#began = instant(clock)
    this.#use = calls.nesting.current()
    this.#call = tell === undefined ? 0 : nextCall()
    this.lease = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    const { waitMs, signal } = terms
    if (waitMs > 0 && waitMs < Infinity) this.#deadline = calls.deadlines.start(waitMs, () => this.#timeUp())
    if (signal !== undefined) this.#stopListening = onAbort(signal, () => this.cancel(signal.reason, 'aborted'))
    tell?.({ type: 'asked', call: this.#call, resources: this.resources, waitMs, shared: false })
  }

  /** Without waiting: asks for each permit that this process does not hold, until it gets one. */
  async tryAll(): Promise<void> {
    await this.#ask(this.permits.count)
    if (this.#isSettled) return
    if (this.#calls.isClosed) return this.cancel(closedError(this.resources), 'closed')
    const { failure } = this.#known
    if (failure !== undefined) this.cancel(failure, 'failed')
    else this.cancel(new HeldError(this.resources, undefined, undefined, this.#details()), 'held')
  }

  /** Nobody before it in line has found that there is none. */
  look(): void {
    if (this.#state !== 'in line') return
    this.#state = 'looking'
    void this.#look()
  }

  async #look(): Promise<void> {
    await this.#ask(MOST_TRIES)
    if (this.#isSettled) return
    this.#state = 'looked'
    this.#calls.pools.foundNone(this)
  }

  /** It is the first in line, after `before`, and asks the servers from now on. */
  first(handedOver: boolean, before?: PermitWaiter): void {
    if (!this.#isInLine) return
    const hasLooked = this.#state === 'looked'
    this.#state = 'first'
    // What was true before our wait began says nothing about it.
    if (before !== undefined && before.#known.atMs >= this.#began.monotonicMs) this.#known = before.#known
    if (handedOver) this.#in(REST_MS, () => this.#move(TRIES_OF_NEXT))
    else void this.#move(hasLooked ? 0 : TRIES_OF_NEXT)
  }

  /** Whether it takes a permit that is released here. One that looks will find a permit by itself. */
  takes(permit: number): boolean {
    return (this.#isInLine || this.#state === 'first') && !this.#isTaking && permit < this.permits.count
  }

  heirOf(permit: number): Heir {
    this.#isTaking = true
    const plan = this.#plan(permit, () => undefined)
    const resume = (): void => {
      this.#isTaking = false
      this.#calls.pools.freed(plan.resources, 0)
    }
    return { ...plan, resume }
  }

  /** A permit may be free. With a delay, other processes go first. */
  freed(permit: number, delayMs: number): void {
    this.#isTaking = true
    this.permits.forget(permit)
    const take = async (): Promise<void> => {
      this.#delay = undefined
      await this.#try(permit)
      this.#isTaking = false
      // Somebody else was faster: the release of that one is waited for as well.
      this.#calls.pools.first(this)?.standAt(permit)
    }
    if (delayMs > 0) this.#delay = this.#calls.settings.clock.timer(() => void take(), delayMs)
    else void take()
  }

  /** Gives up at once for the caller; attempts under way are still waited for and undone. */
  cancel(cause: unknown, reason: DenialReason): void {
    if (!this.settle()) return
    const { resources } = this
    const waitedMs = this.#waitedMs()
    this.#calls.settings.tell?.({ type: 'denied', call: this.#call, resources, reason, waitedMs, cause })
    this.#reject(cause)
    this.leave(false)
  }

  /** Ends what is under way, except for the stand that has just got its permit. False if that was done before. */
  settle(winner?: Stand): boolean {
    if (this.#isSettled) return false
    this.#state = 'settled'
    this.#known = this.#latest()
    this.#deadline?.cancel()
    this.#stopListening?.()
    this.#timer?.cancel()
    this.#delay?.cancel()
    for (const [permit, stand] of this.#stands) if (stand !== winner) this.#abandon(permit, stand)
    return true
  }

  leave(handedOver: boolean): void {
    this.#calls.pools.leave(this, handedOver)
  }

  /** Asks for one permit after the other, `most` of them at most, until it gets one. */
  async #ask(most: number): Promise<void> {
    let tries = 0
    for (const permit of this.permits.candidates()) {
      if (tries === most) return
      if (this.#isHere(permit) || this.#stands.has(permit)) continue
      // Where it waits, another call of this process that asks for it is enough.
      if (this.terms.waitMs > 0 && this.permits.asked.has(permit)) continue
      tries++
      await this.#try(permit)
      if (this.#isSettled || this.#known.failure !== undefined) return
    }
  }

  #isHere(permit: number): boolean {
    return this.#calls.holdings.find([this.permits.name(permit)]) !== undefined
  }

  async #try(permit: number): Promise<void> {
    if (this.#calls.isClosed) return
    const { asked } = this.permits
    asked.add(permit)
    await new Promise<void>((resolve) => this.#calls.attempts.attempt(this.#plan(permit, resolve)))
    asked.delete(permit)
  }

  #plan(permit: number, done: () => void): AttemptPlan {
    return {
      call: this.#call,
      resources: [this.permits.name(permit)],
      ttlMs: this.terms.ttlMs,
      note: this.permits.note(this.terms.note),
      shared: false,
      contended: false,
      isWanted: () => !this.#isSettled,
      granted: (acquisition) => {
        this.#granted(permit, acquisition)
        done()
      },
      refusedOnce: () => undefined,
      refused: (refusal) => {
        this.sawHeld(permit, refusal)
        done()
      },
      failed: (error) => {
        if (error instanceof EngineError && error.transient) this.#known = this.#found(error)
        else this.cancel(error, 'failed')
        done()
      },
    }
  }

  #granted(permit: number, acquisition: Acquisition): void {
    const { holdings } = this.#calls
    this.permits.forget(permit)
    if (!this.settle()) return holdings.giveBack(acquisition)
    const lease = holdings.admit(acquisition, { ...this.terms, permit }, this.#waitedMs()) as PermitLease
    this.leave(acquisition.chain !== undefined)
    this.#resolve(lease)
  }

  sawHeld(permit: number, { remainingMs, holder }: Refusal): void {
    this.permits.sawHeld(permit, remainingMs, holder)
    this.#known = this.#found(undefined)
  }

  #found(failure: EngineError | undefined): Known {
    return { answered: true, holder: undefined, failure, atMs: this.#calls.settings.clock.monotonicMs() }
  }

  /** Looks at a few permits, and then waits at those that were seen longest ago. */
  async #move(tries: number): Promise<void> {
    await this.#ask(tries)
    if (this.#isSettled) return
    for (const permit of this.#stands.keys()) this.permits.waitedFor(permit)
    const next = new Set<number>()
    for (const permit of this.permits.candidates()) {
      if (next.size === MOST_STANDS) break
      if (!this.#isHere(permit)) next.add(permit)
    }
    for (const [permit, stand] of this.#stands) if (!next.has(permit)) this.#abandon(permit, stand)
    for (const permit of next) this.standAt(permit)
    this.#in(MOVE_MS, () => this.#move(TRIES_OF_MOVE))
  }

  /** Waits at this permit too, if it is the first in line. */
  standAt(permit: number): void {
    if (this.#state !== 'first' || this.#stands.size >= MOST_STANDS || this.#stands.has(permit)) return
    const note = this.permits.note(this.terms.note)
    const terms = { ...this.terms, waitMs: Infinity, signal: undefined, permit, note }
    const stand = new Stand(this, permit, terms, this.#calls, { call: this.#call, began: this.#began })
    this.#stands.set(permit, stand)
    stand.lease.then(
      (lease) => this.#resolve(lease as PermitLease),
      (error: unknown) => {
        // Where it was abandoned, it is not there any more.
        if (this.#stands.get(permit) === stand) this.cancel(error, 'failed')
      },
    )
    this.#calls.queue.enter(stand)
  }

  #abandon(permit: number, stand: Stand): void {
    this.#stands.delete(permit)
    stand.cancel(MOVED, 'aborted')
  }

  #in(delayMs: number, next: () => Promise<void>): void {
    this.#timer?.cancel()
    this.#timer = this.#calls.settings.clock.timer(() => void next(), delayMs)
  }

  #timeUp(): void {
    const { resources, terms } = this
    const { pools, engine } = this.#calls
    // Only the first in line asks the servers: what it knows is all there is to know.
    const { answered, failure } = (this.#isInLine ? (pools.first(this) ?? this) : this).#latest()
    if (failure !== undefined) return this.cancel(failure, 'failed')
    const isHere = this.#allHere()
    if (!answered && !isHere)
      return this.cancel(unanswered(engine, { resources, ttlMs: terms.ttlMs }, terms.waitMs), 'failed')
    // If the next call waits for itself, that will be known.
    if (isHere && terms.orNull !== true) this.#calls.nesting.watch()
    this.cancel(new WaitTimeoutError(resources, terms.waitMs, undefined, this.#details()), 'timeout')
  }

  /** Who has the permits, as far as it was seen. */
  #details(): HeldDetails {
    const { count } = this.permits
    const all = Array.from({ length: count }, (_, permit) => permit)
    const isOneHere = all.some((one) => this.#isHere(one))
    const names = all.map((permit) => this.permits.name(permit))
    const isAround = this.#calls.nesting.countAround(this.#use, names) === count
    const holders = [...(isOneHere ? ['this process'] : []), ...this.permits.holders()]
    return { permits: count, holders, otherPermits: this.permits.otherCount(), isAround }
  }

  #allHere(): boolean {
    for (let permit = 0; permit < this.permits.count; permit++) if (!this.#isHere(permit)) return false
    return true
  }

  #latest(): Known {
    let latest = this.#known
    for (const { known } of this.#stands.values()) if (known.atMs > latest.atMs) latest = known
    return latest
  }

  #waitedMs(): number {
    return elapsedMs(this.#calls.settings.clock, this.#began)
  }

  get isWanted(): boolean {
    return !this.#isSettled
  }

  get #isInLine(): boolean {
    return this.#state === 'in line' || this.#state === 'looked'
  }

  get #isSettled(): boolean {
    return this.#state === 'settled'
  }
}

/** The first in line at one of the permits: in the servers' own queue, or listening for a release. */
class Stand extends Waiter {
  readonly #waiter: PermitWaiter
  readonly #permit: number

  constructor(waiter: PermitWaiter, permit: number, ...rest: [WaitTerms, Calls, { call: number; began: Instant }]) {
    super([waiter.permits.name(permit)], ...rest)
    this.#waiter = waiter
    this.#permit = permit
  }

  override granted(acquisition: Acquisition): void {
    // One that was abandoned gives back what it gets: its call goes on.
    const isFirst = this.isWanted() && this.#waiter.settle(this)
    super.granted(acquisition)
    if (isFirst) this.#waiter.leave(acquisition.chain !== undefined)
  }

  override refused(refusal: Refusal): void {
    this.#waiter.sawHeld(this.#permit, refusal)
    super.refused(refusal)
  }
}

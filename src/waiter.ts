import { onAbort } from './aborts.ts'
import { unanswered, type Acquisition, type AttemptPlan } from './attempts.ts'
import type { Calls } from './calls.ts'
import { elapsedMs, instant, type Instant } from './clock.ts'
import type { Deadline } from './deadlines.ts'
import type { Refusal, Watch } from './engine.ts'
import { EngineError, WaitTimeoutError } from './errors.ts'
import { nextCall, type DenialReason } from './events.ts'
import { NOTHING_KNOWN, type Known } from './known.ts'
import type { Lease } from './lease.ts'
import type { Use } from './nesting.ts'
import type { WaitTerms } from './options.ts'
import { isOurs } from './owner.ts'
import { Pace } from './pace.ts'

type WaitState =
  /** Behind another waiter of this process, which makes the attempts. */
  | { readonly kind: 'in line' }
  /** Makes an attempt, or subscribes to releases. */
  | { readonly kind: 'trying' }
  /** Lets others go first. */
  | { readonly kind: 'yielding'; readonly end: () => void }
  /** Until it is woken, or its time is over. */
  | { readonly kind: 'sleeping'; readonly end: () => void }
  /** Asleep while a release of this process hands its lease over to us. */
  | { readonly kind: 'claimed'; readonly end: () => void }
  /** In the servers' own queue. */
  | { readonly kind: 'queued'; readonly place: AbortController }
  /** It has its lease, or has given up. */
  | { readonly kind: 'settled' }

const IN_LINE: WaitState = { kind: 'in line' }
const TRYING: WaitState = { kind: 'trying' }
const SETTLED: WaitState = { kind: 'settled' }

/** What is known about the next attempt. */
interface NextAttempt {
  /** The resource may be free, so there is no reason to sleep. */
  isDue: boolean
  /** Others go first until then; 0 where nobody does. */
  notBeforeMs: number
  /** A release in another process has woken us, and so the others who wait for it. */
  contended: boolean
}

/** The call that a waiter is a part of, where it is not a call by itself. */
export interface PartOf {
  readonly call: number
  readonly began: Instant
}

/** One call of `acquire`, from its place in the queue until it has the lease or gives up. */
export class Waiter implements AttemptPlan {
  readonly resources: readonly string[]
  readonly terms: WaitTerms
  readonly note: string | undefined
  /** 0 when nobody observes. */
  readonly call: number
  readonly lease: Promise<Lease>
  readonly waits = true
  /** Of the attempt under way. */
  contended = false
  readonly #isPart: boolean
  readonly #calls: Calls
  readonly #began: Instant
  readonly #use: Use | undefined
  readonly #deadline: Deadline | undefined
  readonly #stopListening: (() => void) | undefined
  readonly #next: NextAttempt = { isDue: false, notBeforeMs: 0, contended: false }
  #resolve!: (lease: Lease) => void
  #reject!: (reason: unknown) => void
  #state: WaitState = IN_LINE
  #known = NOTHING_KNOWN
  /** Made when an attempt was not granted. */
  #pace: Pace | undefined
  /** Goes on with how long to sleep at most after the attempt under way. The first attempt is made without. */
  #tried: ((pauseMs: number) => void) | undefined

  constructor(resources: readonly string[], terms: WaitTerms, calls: Calls, part?: PartOf) {
    const { clock, tell } = calls.settings
    this.resources = resources
    this.terms = terms
    this.note = terms.note
    this.#calls = calls
    this.#isPart = part !== undefined
    this.#began = part?.began ?? instant(clock)
    this.#use = calls.nesting.current()
    this.call = part?.call ?? (tell === undefined ? 0 : nextCall())
    this.lease = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    if (terms.waitMs < Infinity) this.#deadline = calls.deadlines.start(terms.waitMs, () => this.#timeUp())
    if (terms.signal !== undefined) {
      this.#stopListening = onAbort(terms.signal, () => this.cancel(terms.signal?.reason, 'aborted'))
    }
    // After all of that: an observer may abort the wait.
    if (!this.#isPart) tell?.({ type: 'asked', call: this.call, resources, waitMs: terms.waitMs, shared: terms.shared })
  }

  /** It is first in line, after `before`: from now on it makes the attempts. */
  first(before?: Waiter): void {
    this.#enter(TRYING)
    // What was true before our wait began says nothing about it.
    if (before !== undefined && before.#known.atMs >= this.#began.monotonicMs) this.#known = before.#known
    const mustWait = this.#next.notBeforeMs > 0 || this.#calls.holdings.find(this.resources) !== undefined
    // Most are granted at once, and need nothing of what follows a refusal.
    if (mustWait || this.#isSettled) void this.#run()
    // A part begins after a refusal: an attempt that comes before it listens, or stands in line, would be one too many.
    else if (this.#isPart) void this.#run(0)
    else this.#attempt()
  }

  /** Gives up at once for the caller; an attempt under way is still waited for and undone. */
  cancel(cause: unknown, reason: DenialReason): void {
    const before = this.#state
    if (!this.#settle()) return
    const { call, resources } = this
    const { tell, clock } = this.#calls.settings
    if (!this.#isPart)
      tell?.({ type: 'denied', call, resources, reason, waitedMs: elapsedMs(clock, this.#began), cause })
    this.#reject(cause)
    if (before.kind === 'in line') this.#leave()
    else if (before.kind === 'queued') before.place.abort(cause)
    else if ('end' in before) before.end()
  }

  /** The resource may be free. With a delay, others go first. */
  wake(delayMs = 0): void {
    this.#next.notBeforeMs = delayMs > 0 ? this.#calls.settings.clock.monotonicMs() + delayMs : 0
    this.#next.isDue = true
    if (this.#state.kind === 'sleeping') this.#state.end()
  }

  /** Keeps a waiter that sleeps from making attempts until `resume`, or until it is granted what is handed over to it. */
  claim(): boolean {
    if (this.#state.kind !== 'sleeping') return false
    this.#state = { kind: 'claimed', end: this.#state.end }
    return true
  }

  resume(): void {
    if (this.#state.kind === 'claimed') this.#state = { kind: 'sleeping', end: this.#state.end }
    this.wake()
  }

  // What it asks of the servers, and what becomes of it.

  get ttlMs(): number {
    return this.terms.ttlMs
  }

  get shared(): boolean {
    return this.terms.shared
  }

  get oneRound(): boolean {
    return this.#calls.engine.enqueue !== undefined
  }

  get known(): Known {
    return this.#known
  }

  isWanted(): boolean {
    return !this.#isSettled
  }

  waitedMs(): number {
    return this.#calls.settings.clock.monotonicMs() - this.#began.monotonicMs
  }

  granted(acquisition: Acquisition): void {
    const { holdings, settings } = this.#calls
    const before = this.#state
    if (this.#settle()) {
      const lease = holdings.admit(acquisition, this.terms, elapsedMs(settings.clock, this.#began))
      // At once, so that the lease can be handed over to the next in line even if it is released very soon.
      this.#leave()
      this.#resolve(lease)
      if (before.kind === 'claimed') before.end()
    } else {
      holdings.giveBack(acquisition)
      if (this.#tried === undefined) this.#leave()
    }
    this.#tried?.(0)
  }

  refusedOnce(refusal: Refusal): void {
    this.#refused(refusal)
  }

  refused(refusal: Refusal): void {
    const { contended } = this
    if (refusal.holder !== undefined && !isOurs(refusal.holder)) {
      this.#calls.fairness.sawOtherSoftware(this.resources)
      // Every other look asks the first server alone: all of them at once would get in the way of the other software.
      this.#next.contended ||= !contended
    }
    this.#goOn(this.#paced().refused(refusal, contended))
  }

  failed(error: unknown): void {
    if (error instanceof EngineError && error.transient) {
      this.failing(error)
      return this.#goOn(this.#paced().failed())
    }
    this.cancel(error, 'failed')
    this.#goOn(0)
  }

  #attempt(): void {
    this.contended = this.#next.contended
    this.#next.contended = false
    this.#next.isDue = false
    this.#calls.attempts.attempt(this)
  }

  /** The attempt was not granted. */
  #goOn(pauseMs: number): void {
    if (this.#tried !== undefined) this.#tried(pauseMs)
    // Never rejects: every failure ends in `cancel`.
    else void this.#run(pauseMs)
  }

  /** Until it has the lease or gives up. `triedMs`: the first attempt was made, and this is how long to sleep at most. */
  async #run(triedMs?: number): Promise<void> {
    const { engine, holdings, fairness, nesting } = this.#calls
    let watch: Watch | undefined
    let armed = false
    try {
      while (!this.#isSettled) {
        let pauseMs = triedMs
        triedMs = undefined
        if (pauseMs === undefined) {
          const here = holdings.find(this.resources)
          if (here !== undefined) {
            this.#refused({ holder: here.owner })
            if (!this.#isPart) nesting.standsBehind(this.#use, this, here)
            this.#tellWaiting(here.remainingMs())
            // Its end wakes us. The time is for a lease that ends by itself.
            await this.#sleep(here.remainingMs() + 1)
            continue
          }
          if (this.#next.notBeforeMs > 0) {
            await this.#yield()
            if (this.#isSettled) break
          }
          pauseMs = await this.#try()
        }
        if (this.#isSettled) break
        if (engine.enqueue !== undefined && this.#known.failure === undefined) {
          this.#tellWaiting(Infinity)
          // An observer may have aborted the wait.
          if (this.#isSettled) break
          await this.#queue()
          // It got no place in the queue. An engine may fail that fast forever, so it does not try again at once.
          if (this.#known.failure !== undefined && !this.#isSettled) await this.#sleep(this.#paced().failed())
          continue
        }
        if (watch === undefined && engine.watch !== undefined) {
          // After the subscription comes another attempt: a release between the last attempt and it would go unnoticed.
          watch = engine.watch(this.resources, () => {
            this.#next.contended = true
            this.wake(fairness.heardRelease(this.resources))
          })
          armed = await watch.armed
          if (armed) continue
          // The subscription failed; the next round subscribes again.
          watch.close()
          watch = undefined
        }
        const sleepMs = armed ? pauseMs : Math.min(pauseMs, this.#paced().pollMs())
        this.#tellWaiting(sleepMs)
        await this.#sleep(sleepMs)
      }
    } catch (error) {
      this.cancel(error, 'failed')
    } finally {
      watch?.close()
      this.#leave()
    }
  }

  /** One attempt. Returns how long to sleep at most before the next. */
  #try(): Promise<number> {
    return new Promise((resolve) => {
      this.#tried = resolve
      this.#attempt()
    })
  }

  #paced(): Pace {
    return (this.#pace ??= new Pace(this.#calls.settings.random))
  }

  async #queue(): Promise<void> {
    const place = new AbortController()
    this.#enter({ kind: 'queued', place })
    const outcome = await this.#calls.attempts
      .enqueue(this, place.signal, () => this.#calls.queue.heir(this))
      .catch((error: unknown) => (this.#isSettled ? undefined : transient(error)))
    if (outcome instanceof EngineError) this.failing(outcome)
    this.#enter(TRYING)
  }

  async #yield(): Promise<void> {
    const waitMs = this.#next.notBeforeMs - this.#calls.settings.clock.monotonicMs()
    this.#next.notBeforeMs = 0
    if (waitMs <= 0) return
    await this.#pause('yielding', waitMs)
    this.#enter(TRYING)
  }

  /** Sleeps until woken, and while a lease is being handed over to us. */
  async #sleep(delayMs: number): Promise<void> {
    if (!this.#next.isDue && !this.#isSettled) await this.#pause('sleeping', delayMs)
    while (this.#state.kind === 'claimed') await this.#pause('claimed', Infinity)
    this.#enter(TRYING)
    this.#next.isDue = false
  }

  #pause(kind: 'yielding' | 'sleeping' | 'claimed', ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === Infinity ? undefined : this.#calls.settings.clock.timer(resolve, ms)
      const end = (): void => {
        timer?.cancel()
        resolve()
      }
      this.#state = { kind, end }
    })
  }

  #refused({ holder, offered = false, writerWaits = false }: Partial<Refusal>): void {
    const atMs = this.#calls.settings.clock.monotonicMs()
    this.#known = { answered: true, holder, failure: undefined, atMs, offered, writerWaits }
  }

  failing(failure: EngineError | undefined): void {
    const atMs = this.#calls.settings.clock.monotonicMs()
    this.#known = { ...this.#known, answered: true, failure, atMs }
  }

  #timeUp(): void {
    const { resources } = this
    const { waitMs } = this.terms
    const { holdings, engine, nesting } = this.#calls
    const here = nesting.heldHere(this.#use, this, holdings.inTheWay(resources, this.shared))
    if (here !== undefined) {
      if (this.terms.orNull !== true) nesting.watch()
      return this.cancel(new WaitTimeoutError(resources, waitMs, here.owner, { here }), 'timeout')
    }
    const { failure, holder, answered, offered, writerWaits } = this.#asking().#known
    if (failure !== undefined) return this.cancel(failure, 'failed')
    // An engine that has not answered at all is not a resource that is busy.
    if (!answered) return this.cancel(unanswered(engine, this, waitMs), 'failed')
    this.cancel(new WaitTimeoutError(resources, waitMs, holder, { offered, writerWaits }), 'timeout')
  }

  /** Who makes the attempts. Further behind in a line a waiter makes none: what the first one knows is all there is to know. */
  #asking(): Waiter {
    const ahead = this.#state.kind === 'in line' ? this.#calls.queue.ahead(this) : undefined
    return ahead === undefined ? this : ahead.#asking()
  }

  get #isSettled(): boolean {
    return this.#state.kind === 'settled'
  }

  /** A wait that is settled stays so. */
  #enter(state: WaitState): void {
    if (!this.#isSettled) this.#state = state
  }

  #settle(): boolean {
    if (this.#isSettled) return false
    this.#state = SETTLED
    this.#deadline?.cancel()
    this.#stopListening?.()
    return true
  }

  /** The wait is over and no attempt of it is under way. */
  #leave(): void {
    const { queue, fairness } = this.#calls
    queue.leave(this)
    if (queue.heads(this.resources).length === 0) fairness.forget(this.resources)
  }

  #tellWaiting(atMostMs: number): void {
    const { call, resources } = this
    this.#calls.settings.tell?.({ type: 'waiting', call, resources, holder: this.#known.holder, atMostMs })
  }
}

/** Returns a failure after which to try again, and throws any other. */
function transient(error: unknown): EngineError {
  if (error instanceof EngineError && error.transient) return error
  throw error
}

import { elapsedMs, instant, sleep, type Clock, type Instant } from './clock.ts'
import type { Deadline, Deadlines } from './deadlines.ts'
import type { Engine, Refusal, Watch } from './engine.ts'
import { EngineError, WaitTimeoutError } from './errors.ts'
import { nextCall, tell, type DenialReason, type Tell } from './events.ts'
import type { Chain, Lease, LeaseRecord } from './lease.ts'
import type { WaitTerms } from './options.ts'
import type { Random } from './random.ts'
import type { Turns } from './turns.ts'

/** An attempt that was granted: not yet a lease in anyone's hands. */
export interface Won {
  readonly kind: 'won'
  readonly call: number
  readonly resources: readonly string[]
  readonly owner: string
  readonly token: bigint
  readonly ttlMs: number
  readonly since: Instant
  readonly chain: Chain | undefined
}

/** How an attempt contends with rivals. */
export interface Contest {
  /** On whose behalf. */
  readonly call: number
  /** Others were woken with us: let the first server decide. */
  readonly contended: boolean
  /** Does anyone still wait for it? */
  isWanted(): boolean
}

/** What a waiter needs of the locks it waits for. */
export interface WaitHost {
  readonly engine: Engine
  readonly clock: Clock
  readonly deadlines: Deadlines
  readonly random: Random
  readonly turns: Turns
  readonly observer: Tell | undefined
  /** One attempt on the servers, and more after a split vote while it is still wanted; rejects with `EngineError`. */
  attempt(resources: readonly string[], ttlMs: number, contest: Contest): Promise<Won | Refusal>
  /** A place in the servers' own queue, until it is our turn; rejects with `EngineError` or when the signal aborts. */
  enqueue(call: number, resources: readonly string[], ttlMs: number, signal: AbortSignal): Promise<Won>
  /** A lease of this very process that stands in the way: no need to ask a server. */
  heldHere(resources: readonly string[]): LeaseRecord | undefined
  admit(won: Won, terms: WaitTerms, waitedMs: number): Lease
  /** Releases what nobody wants any more, in the background. */
  giveBack(won: Won): void
  /** The waiter is done and no attempt of it is under way. */
  left(waiter: Waiter): void
}

/** Without a wake-up we ask again after 50 ms, then twice that, up to a second, each time somewhere in between. */
const POLL_MS = { first: 50, most: 1000 }

/** One call of `acquire`, from its place in the line until it has the lease or gives up. */
export class Waiter {
  readonly resources: readonly string[]
  readonly terms: WaitTerms
  /** 0 when nobody observes. */
  readonly call: number
  readonly lease: Promise<Lease>
  readonly #host: WaitHost
  readonly #began: Instant
  readonly #deadline: Deadline | undefined
  #abort: (() => void) | undefined
  #resolve!: (lease: Lease) => void
  #reject!: (reason: unknown) => void
  #settled = false
  #running = false
  /** A release of this process is passing its lease on to us. */
  #claimed = false
  #woken = false
  #endSleep: (() => void) | undefined
  /** Ends our place in the servers' queue. */
  #cancelled: AbortController | undefined
  #notBeforeMs = 0
  /** Woken by a release: so are the others who wait for it. */
  #contended = false
  #failure: EngineError | undefined
  /** Any answer at all has come. */
  #answered = false
  #holder: string | undefined

  constructor(resources: readonly string[], terms: WaitTerms, host: WaitHost) {
    this.resources = resources
    this.terms = terms
    this.#host = host
    this.#began = instant(host.clock)
    this.call = host.observer === undefined ? 0 : nextCall()
    if (host.observer !== undefined) {
      tell(host.observer, { type: 'asked', call: this.call, resources, waitMs: terms.waitMs })
    }
    this.lease = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    if (terms.waitMs < Infinity) this.#deadline = host.deadlines.start(terms.waitMs, () => this.#timeUp())
    if (terms.signal !== undefined) {
      this.#abort = () => this.cancel(terms.signal?.reason, 'aborted')
      terms.signal.addEventListener('abort', this.#abort)
    }
  }

  /** It is first in line: from now on it makes the attempts. */
  first(): void {
    this.#running = true
    // Never rejects: every failure ends in `cancel`.
    void this.#run()
  }

  /** Gives up at once for the caller; an attempt under way is still waited for and undone. */
  cancel(reason: unknown, why: DenialReason): void {
    if (!this.#settle()) return
    const { observer, clock } = this.#host
    if (observer !== undefined) {
      const { call, resources } = this
      const waitedMs = elapsedMs(clock, this.#began)
      tell(observer, { type: 'denied', call, resources, reason: why, waitedMs, cause: reason })
    }
    this.#reject(reason)
    this.#cancelled?.abort(reason)
    if (this.#running) this.wake()
    else this.#host.left(this)
  }

  /** The resource may be free. With a delay, others get their turn first. */
  wake(delayMs = 0): void {
    this.#notBeforeMs = delayMs > 0 ? this.#host.clock.monotonicMs() + delayMs : 0
    this.#woken = true
    this.#endSleep?.()
  }

  /** Keeps the waiter from making attempts, if it makes none now, until `accept` or `resume`. */
  claim(): boolean {
    if (this.#settled || this.#claimed || this.#endSleep === undefined) return false
    this.#claimed = true
    return true
  }

  accept(won: Won): void {
    this.#won(won)
    this.resume()
  }

  resume(): void {
    this.#claimed = false
    this.wake()
  }

  async #run(): Promise<void> {
    const { engine } = this.#host
    let watch: Watch | undefined
    let armed = false
    let polls = 0
    try {
      while (!this.#settled) {
        const here = this.#host.heldHere(this.resources)
        if (here !== undefined) {
          this.#holder = here.owner
          this.#answered = true
          this.#tellWaiting(here.remainingMs())
          // Its end wakes us; the time is for the case that it ends by itself.
          await this.#sleep(here.remainingMs() + 1)
          continue
        }
        if (this.#notBeforeMs > 0) {
          await this.#courtesy()
          if (this.#settled) break
        }
        this.#woken = false
        const pauseMs = await this.#try(polls++)
        if (this.#settled) break
        if (engine.enqueue !== undefined && this.#failure === undefined) {
          this.#tellWaiting(Infinity)
          await this.#queue()
          // A place that could not be had: the engine may answer as fast as that for ever, so not again at once.
          if (this.#failure !== undefined && !this.#settled) await this.#sleep(this.#backoffMs(polls))
          continue
        }
        if (watch === undefined && engine.watch !== undefined) {
          // Armed first, then tried again: a release between a failed attempt and the subscription would go unnoticed.
          watch = engine.watch(this.resources, () => {
            this.#contended = true
            this.wake(this.#host.turns.heard(this.resources))
          })
          armed = await watch.armed
          if (armed) continue
          // Not now; the next round asks again.
          watch.close()
          watch = undefined
        }
        const sleepMs = armed ? pauseMs : Math.min(pauseMs, this.#backoffMs(polls))
        this.#tellWaiting(sleepMs)
        await this.#sleep(sleepMs)
      }
    } catch (error) {
      this.cancel(error, 'failed')
    } finally {
      watch?.close()
      this.#host.left(this)
    }
  }

  /** One attempt. Answers how long to sleep at most before the next. */
  async #try(polls: number): Promise<number> {
    const contended = this.#contended
    this.#contended = false
    const contest = { call: this.call, contended, isWanted: () => !this.#settled }
    const outcome = await this.#host.attempt(this.resources, this.terms.ttlMs, contest).catch((error: unknown) => {
      if (error instanceof EngineError && error.transient) return error
      throw error
    })
    this.#answered = true
    if (outcome instanceof EngineError) {
      this.#failure = outcome
      return this.#backoffMs(polls)
    }
    if (outcome.kind === 'won') {
      this.#won(outcome)
      return 0
    }
    this.#failure = undefined
    this.#holder = outcome.holder
    // In a contended attempt the first server alone has refused us; the next one asks them all, if we are not woken before.
    if (contended || outcome.reason === 'split' || outcome.remainingMs === undefined)
      return this.#backoffMs(contended ? 0 : polls)
    // A lease that nobody renews ends then. A little later each, so that a thousand waiters don't all come at once.
    const spreadMs = Math.min(outcome.remainingMs * 0.05, 20)
    return outcome.remainingMs + 1 + this.#host.random.fraction() * spreadMs
  }

  async #queue(): Promise<void> {
    this.#cancelled = new AbortController()
    try {
      this.#won(await this.#host.enqueue(this.call, this.resources, this.terms.ttlMs, this.#cancelled.signal))
    } catch (error) {
      if (this.#settled) return
      if (!(error instanceof EngineError && error.transient)) throw error
      this.#failure = error
    }
  }

  #tellWaiting(atMostMs: number): void {
    const { observer } = this.#host
    if (observer === undefined) return
    const { call, resources } = this
    tell(observer, { type: 'waiting', call, resources, holder: this.#holder, atMostMs })
  }

  #won(won: Won): void {
    if (!this.#settle()) return this.#host.giveBack(won)
    const lease = this.#host.admit(won, this.terms, elapsedMs(this.#host.clock, this.#began))
    // At once, so that the next in line is ready to be handed the lease however soon it is released.
    this.#host.left(this)
    this.#resolve(lease)
  }

  #settle(): boolean {
    if (this.#settled) return false
    this.#settled = true
    this.#deadline?.cancel()
    if (this.#abort !== undefined) this.terms.signal?.removeEventListener('abort', this.#abort)
    return true
  }

  #timeUp(): void {
    if (this.#failure !== undefined) return this.cancel(this.#failure, 'failed')
    const timeout = new WaitTimeoutError(this.resources, this.terms.waitMs, this.#holder, this.#answered)
    this.cancel(timeout, 'timeout')
  }

  #backoffMs(polls: number): number {
    const mostMs = Math.min(POLL_MS.first * 2 ** Math.min(polls, 10), POLL_MS.most)
    return mostMs * (0.5 + 0.5 * this.#host.random.fraction())
  }

  /** Sleeps until woken, and while a hand-over to us is under way. */
  async #sleep(delayMs: number): Promise<void> {
    const { clock } = this.#host
    do {
      if (!this.#woken && !this.#settled) {
        const ms = this.#claimed ? Infinity : delayMs
        await new Promise<void>((resolve) => {
          const timer = ms === Infinity ? undefined : clock.timer(resolve, ms)
          this.#endSleep = () => {
            timer?.cancel()
            resolve()
          }
        })
        this.#endSleep = undefined
      }
      this.#woken = false
    } while (this.#claimed && !this.#settled)
  }

  async #courtesy(): Promise<void> {
    const waitMs = this.#notBeforeMs - this.#host.clock.monotonicMs()
    this.#notBeforeMs = 0
    if (waitMs <= 0) return
    this.#cancelled = new AbortController()
    await sleep(this.#host.clock, waitMs, this.#cancelled.signal)
  }
}

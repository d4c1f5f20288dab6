import { settled, type Clock, type Timer } from '../clock.ts'
import { durationMs, type Duration } from '../duration.ts'

export { settled }

interface Pending {
  readonly dueMs: number
  readonly callback: () => void
  readonly background: boolean
}

/** A clock that stands still until a test moves it, so that hours pass in no time and always in the same way. */
export class ManualClock implements Clock {
  #monotonicMs: number
  #wallMs: number
  readonly #timers = new Set<Pending>()

  /** Far from zero, and the two far from each other: nothing may depend on where a clock begins or mix them up. */
  constructor(monotonicMs = 5_000_000, wallMs = 1_700_000_000_000) {
    this.#monotonicMs = monotonicMs
    this.#wallMs = wallMs
  }

  monotonicMs(): number {
    return this.#monotonicMs
  }

  wallMs(): number {
    return this.#wallMs
  }

  timer(callback: () => void, delayMs: number, background = false): Timer {
    // Whole milliseconds, as real timers have them: the rest of a fraction must not fire without time passing.
    const pending = { dueMs: this.#monotonicMs + Math.ceil(Math.max(delayMs, 0)), callback, background }
    this.#timers.add(pending)
    return { cancel: () => void this.#timers.delete(pending) }
  }

  /** Timers that have neither fired nor been cancelled. */
  get timers(): number {
    return this.#timers.size
  }

  /** Those of them that would keep a process alive. */
  get foregroundTimers(): number {
    return [...this.#timers].filter(({ background }) => !background).length
  }

  /** Both clocks go on; every timer fires when it is due, in order, with all promises settled in between. */
  async advance(time: Duration): Promise<void> {
    const targetMs = this.#monotonicMs + msOf(time)
    await settled()
    for (let next = this.#next(targetMs); next !== undefined; next = this.#next(targetMs)) {
      this.#pass(next.dueMs - this.#monotonicMs)
      await this.#fire(next)
    }
    this.#pass(targetMs - this.#monotonicMs)
    await settled()
  }

  /** The process stands still (stopped, or its event loop blocked): whatever became due meanwhile fires late. */
  async stall(time: Duration): Promise<void> {
    await settled()
    this.#pass(msOf(time))
    const nowMs = this.#monotonicMs
    for (let next = this.#next(nowMs); next !== undefined; next = this.#next(nowMs)) await this.#fire(next)
    await settled()
  }

  /** Both clocks go on and nothing runs: how synchronous code that takes this long looks from inside. */
  pass(time: Duration): void {
    this.#pass(msOf(time))
  }

  /** Somebody sets the wall clock, or the machine sleeps while the monotonic clock stands still. */
  jumpWall(ms: number): void {
    this.#wallMs += ms
  }

  /** Time passes that the wall clock does not show: it was set back by as much meanwhile. */
  passMonotonic(ms: number): void {
    this.#monotonicMs += ms
  }

  #pass(ms: number): void {
    this.#monotonicMs += ms
    this.#wallMs += ms
  }

  #next(untilMs: number): Pending | undefined {
    let next: Pending | undefined
    for (const timer of this.#timers) {
      if (timer.dueMs <= untilMs && (next === undefined || timer.dueMs < next.dueMs)) next = timer
    }
    return next
  }

  async #fire(timer: Pending): Promise<void> {
    this.#timers.delete(timer)
    timer.callback()
    await settled()
  }
}

/** A number stays as it is: clocks have fractions of milliseconds. */
function msOf(time: Duration): number {
  const wholeMs = durationMs(time, 'time')
  return typeof time === 'number' ? time : wholeMs
}

import type { Clock, Timer } from '../src/clock.ts'
import type { MachineClock, Time } from './clock.ts'
import type { Seeded } from './random.ts'

/** A timer of a healthy process is at most this late. */
const LATEST_TIMER_MS = 0.5

/**
 * A pause that begins in the middle of running code: when it has looked at its clock or sent something this many times, or
 * right before it writes to the store, which is where it does harm.
 */
interface ArmedPause {
  left: number
  readonly ms: number
  readonly atWrite: boolean
}

/** Something that happens after this many steps, counted from now or from every answer anew. */
interface Meanwhile {
  left: number
  readonly after: number
  readonly since: 'now' | 'answer'
  readonly act: () => void
}

/**
 * A client process: its view of time, and whether it runs at all. What reaches it while it stands still (timers, answers of
 * servers) waits until it goes on. A pause may begin between two events, or in the middle of running code: then the code
 * finds, the next time it looks at the clock, that it is later than it was, and what it sends leaves later.
 */
export class Process implements Clock {
  readonly name: string
  readonly machine: MachineClock
  readonly #time: Time
  readonly #random: Seeded
  readonly #timers = new Set<object>()
  #runsAgainMs = 0
  #armed: ArmedPause | undefined
  #meanwhile: Meanwhile | undefined
  /** Timers first or messages first, when it goes on. */
  #timersFirst = false
  isAlive = true

  constructor(name: string, time: Time, machine: MachineClock, random: Seeded) {
    this.name = name
    this.machine = machine
    this.#time = time
    this.#random = random
  }

  /** True time as far as this process has got. */
  get nowMs(): number {
    return Math.max(this.#time.nowMs, this.#runsAgainMs)
  }

  get timers(): number {
    return this.#timers.size
  }

  monotonicMs(): number {
    this.#step()
    return this.machine.monotonicMs(this.nowMs)
  }

  wallMs(): number {
    this.#step()
    return this.machine.wallMs(this.nowMs)
  }

  timer(callback: () => void, delayMs: number): Timer {
    const pending = {}
    // Whole milliseconds and at least one, as real timers have them; and never quite on time.
    const dueMs = this.machine.monotonicMs(this.nowMs) + Math.max(Math.ceil(delayMs), 1)
    this.#timers.add(pending)
    const fire = (): void => {
      if (!this.#timers.has(pending)) return
      const leftMs = dueMs - this.machine.monotonicMs()
      // The clock went slower meanwhile.
      if (leftMs > 1e-6) return this.#time.after(leftMs / this.machine.rate, fire)
      this.enter(() => {
        if (this.#timers.delete(pending)) callback()
      }, 'timer')
    }
    const lateMs = this.#random.fraction() * LATEST_TIMER_MS
    const inMs = (dueMs - this.machine.monotonicMs(this.nowMs)) / this.machine.rate
    if (inMs < Infinity) this.#time.at(this.nowMs + inMs + lateMs, fire)
    return { cancel: () => void this.#timers.delete(pending) }
  }

  /** Something reaches this process: runs now, or when it runs again. Nothing reaches a dead one. */
  enter(run: () => void, kind: 'timer' | 'message' = 'message'): void {
    if (!this.isAlive) return
    if (this.#time.nowMs < this.#runsAgainMs) {
      const rank = this.#timersFirst === (kind === 'timer') ? 0 : 1
      this.#time.at(this.#runsAgainMs, () => this.enter(run, kind), rank)
      return
    }
    this.#time.touch()
    run()
  }

  /** Something leaves it. Returns when, in true time. */
  leave(what: 'message' | 'write' = 'message'): number {
    this.#step(what)
    return this.nowMs
  }

  /** Looks at something from outside: not a step of the process, so no pause begins there. */
  peek<T>(look: () => T): T {
    const [armed, meanwhile] = [this.#armed, this.#meanwhile]
    this.disarm()
    const seen = look()
    this.#armed = armed
    this.#meanwhile = meanwhile
    return seen
  }

  /** Stands still from now on, or from the given number of steps on, or from its next write on. */
  pause(ms: number, after: number | 'write' = 0): void {
    this.#timersFirst = this.#random.chance(0.5)
    if (after === 'write') this.#armed = { left: 1, ms, atWrite: true }
    else if (after > 0) this.#armed = { left: after, ms, atWrite: false }
    else this.#runsAgainMs = Math.max(this.#runsAgainMs, this.#time.nowMs + ms)
  }

  /** Something else happens in this process between two steps of its code, after this many of them, counted from now or from an answer. */
  meanwhile(after: number, act: () => void, since: 'now' | 'answer' = 'now'): void {
    if (after === 0) this.enter(act)
    else this.#meanwhile = { left: since === 'now' ? after : Infinity, after, since, act }
  }

  /** It hears of a vote: what is to happen some steps after an answer is counted from here. */
  hears(): void {
    if (this.#meanwhile?.since === 'answer') this.#meanwhile.left = this.#meanwhile.after
  }

  /** No pause begins any more. */
  disarm(): void {
    this.#armed = undefined
    this.#meanwhile = undefined
  }

  /** Ends for good: its timers never fire, and nothing is heard of it any more. */
  crash(): void {
    this.isAlive = false
    this.#timers.clear()
  }

  #step(what?: 'message' | 'write'): void {
    if (this.#meanwhile !== undefined && --this.#meanwhile.left <= 0) {
      queueMicrotask(this.#meanwhile.act)
      this.#meanwhile = undefined
    }
    if (this.#armed === undefined || (this.#armed.atWrite && what !== 'write') || --this.#armed.left > 0) return
    this.#runsAgainMs = this.nowMs + this.#armed.ms
    this.#armed = undefined
    this.onStall?.()
  }

  /** Told when a pause begins in the middle of running code. */
  onStall: (() => void) | undefined
}

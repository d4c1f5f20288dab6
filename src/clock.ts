import { methodsOrThrow } from './arguments.ts'
import { nextTick } from './platform.ts'

/** Tells the time and sets timers. Tests and simulators hand in one of their own. */
export interface Clock {
  /** Milliseconds that never go back; may stand still while the machine sleeps. */
  monotonicMs(): number
  /** Milliseconds since 1970; may jump either way. */
  wallMs(): number
  /** Calls back once, not before `delayMs` have passed. A `background` timer does not keep the process alive. */
  timer(callback: () => void, delayMs: number, background?: boolean): Timer
}

/** A timer that a `Clock` has set. */
export interface Timer {
  cancel(): void
}

/** A clock with one more reading that is the same in every process of this machine. */
export interface MachineClock extends Clock {
  /** Milliseconds since a point that is the same for all processes of one boot; setting the wall clock does not touch it. */
  machineMs(): number
}

/** A point in time on both clocks. */
export interface Instant {
  readonly monotonicMs: number
  readonly wallMs: number
}

/** The longest delay that setTimeout takes; it fires at once for a longer one, which is split into pieces. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

/** In browsers a timer is a number, and keeps nothing alive. */
function unref(timer: NodeJS.Timeout | number): void {
  if (typeof timer === 'object') timer.unref()
}

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  timer(callback, delayMs, background = false) {
    if (delayMs <= LONGEST_TIMER_MS) {
      const timer = setTimeout(callback, Math.max(delayMs, 0))
      if (background) unref(timer)
      return { cancel: () => clearTimeout(timer) }
    }
    let leftMs = delayMs
    const wait = (): NodeJS.Timeout => {
      const pieceMs = Math.min(leftMs, LONGEST_TIMER_MS)
      leftMs -= pieceMs
      const next = setTimeout(leftMs > 0 ? again : callback, pieceMs)
      if (background) unref(next)
      return next
    }
    const again = (): void => {
      handle = wait()
    }
    let handle = wait()
    return { cancel: () => clearTimeout(handle) }
  },
}

/** The option `clock`. Default: the system's. */
export function clockOrThrow(clock: unknown): Clock {
  if (clock === undefined) return systemClock
  methodsOrThrow(clock, 'clock', ['monotonicMs', 'wallMs', 'timer'])
  return clock as Clock
}

export const machineClock: MachineClock = {
  ...systemClock,
  // `performance.now()` starts at 0 in each process; this does not.
  machineMs: () => Number(process.hrtime.bigint()) / 1e6,
}

export function instant(clock: Clock): Instant {
  return { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() }
}

/**
 * The time since an instant, as the greater of the two clocks' differences: the monotonic clock stops while a laptop sleeps,
 * and the wall clock can be set back. A wall clock that jumps ahead only makes us give up early.
 */
export function elapsedMs(clock: Clock, since: Instant): number {
  return Math.max(clock.monotonicMs() - since.monotonicMs, clock.wallMs() - since.wallMs)
}

/** Resolves after `delayMs`, or at once when the signal aborts (the caller looks at the signal itself). */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) return resolve()
    const timer = clock.timer(done, delayMs)
    signal?.addEventListener('abort', done)
    function done(): void {
      timer.cancel()
      signal?.removeEventListener('abort', done)
      resolve()
    }
  })
}

/** Calls back when the code that runs now, and all promises that are settled by then, have had their turn. */
export function endOfTurn(callback: () => void): void {
  nextTick(callback)
}

/** Not the one of today: a test that replaces the timers of its process has replaced that one too. */
const immediate: (callback: () => void) => void = globalThis.setImmediate ?? ((callback) => setTimeout(callback))

/** Resolves when every promise that can settle without time passing has done so. */
export function settled(): Promise<void> {
  return new Promise((resolve) => {
    immediate(resolve)
  })
}

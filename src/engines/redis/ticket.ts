import type { Clock } from '../../clock.ts'

/** By how much the wall clock is ahead of the monotonic one, in ms, as far as is known. */
const ahead = new WeakMap<Clock, number>()

/**
 * The wall clock in µs, for the order of waits. Wall clocks show whole milliseconds only; the part behind them is taken from
 * the monotonic clock, so that two waits of a process never get the same ticket or change places.
 */
export function newTicket(clock: Clock): number {
  const monotonicMs = clock.monotonicMs()
  const leastMs = clock.wallMs() - monotonicMs
  const knownMs = ahead.get(clock) ?? -Infinity
  // Cut off below a millisecond, so the most that was seen is nearest. Any other difference means that the clock was set.
  const aheadMs = leastMs > knownMs || leastMs <= knownMs - 1 ? leastMs : knownMs
  ahead.set(clock, aheadMs)
  return Math.round((monotonicMs + aheadMs) * 1000)
}

import { monitorEventLoopDelay, PerformanceObserver } from 'node:perf_hooks'

/** How long this process stood still at most, in ms. */
export interface Pauses {
  /** For whatever reason: work of its own, garbage collection, a machine that gave it no time. */
  readonly longestMs: number
  /** Of that, what the garbage collector took at a time. */
  readonly longestGcMs: number
}

/** A timer that is to fire this often shows how late it is. */
const LOOK_MS = 5

/** Watches how long this process stands still, from now until it is asked. Not by `src/clock.ts`: only Node itself can tell. */
export function watchPauses(): () => Pauses {
  const delay = monitorEventLoopDelay({ resolution: LOOK_MS })
  let longestGcMs = 0
  const observer = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) longestGcMs = Math.max(longestGcMs, duration)
  })
  observer.observe({ entryTypes: ['gc'] })
  delay.enable()
  return () => {
    delay.disable()
    observer.disconnect()
    return { longestMs: Math.max(delay.max / 1e6, longestGcMs), longestGcMs }
  }
}

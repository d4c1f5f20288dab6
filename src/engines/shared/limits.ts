import { durationMs, shown } from '../../duration.ts'
import type { EngineLimits } from '../../engine.ts'

/** A year. Most servers keep longer leases, but nobody waits for a lock that long. */
export const LONGEST_TTL_MS = 365 * 86_400_000
const DEFAULT_DRIFT = 0.01
/** Servers and Node round times to whole milliseconds, each of them once. */
const CLOCK_GRAIN_MS = 2

/** Parses the option `drift`: how much the speed of two clocks may differ, as a part of the ttl. */
export function driftOrThrow(drift: unknown = DEFAULT_DRIFT): EngineLimits['driftMs'] {
  if (typeof drift !== 'number' || !(drift >= 0 && drift <= 0.5)) {
    throw new RangeError(`drift: expected a part of the ttl from 0 to 0.5, got ${shown(drift)}`)
  }
  return (ttlMs) => Math.ceil(ttlMs * drift) + CLOCK_GRAIN_MS
}

/** Where the user sets no request timeout, it is a part of the ttl within bounds. */
export interface DefaultTimeout {
  /** The request timeout is the ttl divided by this. */
  readonly divisor: number
  /** At least this long (a busy server), or half of the ttl where that is shorter. */
  readonly leastMs: number
  readonly mostMs: number
}

/** Parses the option `requestTimeout`. Returns the longest time that a request about a lease of this ttl may take. */
export function requestTimeoutOrThrow(given: unknown, byDefault: DefaultTimeout): (ttlMs: number) => number {
  if (given !== undefined) {
    const timeoutMs = durationMs(given, 'requestTimeout', { minMs: 1, maxMs: 60_000 })
    return () => timeoutMs
  }
  const { divisor, leastMs, mostMs } = byDefault
  return (ttlMs) => Math.min(Math.max(ttlMs / divisor, Math.min(leastMs, ttlMs / 2)), mostMs)
}

import type { Clock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import { milliseconds, type Findings } from './findings.ts'

/** Enough to see a hiccup, few enough to be waited for. */
const TRIPS = 7

export interface RoundTripLimits {
  readonly ttlMs: number
  /** A longer trip is a warning. */
  readonly slowMs: number
  /** A longer median is critical. Default: none is. */
  readonly tooSlowMs?: number
  /** What slow answers cost. */
  readonly meaning: string
  /** How many times the longest trip a ttl should be. */
  readonly ttlPerTrip: number
  /** What to do besides taking a longer ttl: 'move the servers nearer'. */
  readonly remedy: string
}

/** How long it takes to ask the same thing a few times. */
export async function timeTrips(clock: Clock, trip: () => Promise<unknown>, count = TRIPS): Promise<number[]> {
  const tripsMs: number[] = []
  for (let i = 0; i < count; i++) {
    const sentMs = clock.monotonicMs()
    await trip()
    tripsMs.push(clock.monotonicMs() - sentMs)
  }
  return tripsMs
}

/** Are answers quick enough for the ttl? */
export function checkRoundTrip(report: Findings, tripsMs: readonly number[], limits: RoundTripLimits): Finding {
  const { ttlMs, slowMs, tooSlowMs = Infinity, meaning, ttlPerTrip, remedy } = limits
  const sorted = [...tripsMs].sort((a, b) => a - b)
  const median = sorted[Math.floor(sorted.length / 2)]!
  const longest = sorted.at(-1)!
  const found = `An answer takes ${milliseconds(median)} (median); the longest of ${sorted.length} took ${milliseconds(longest)}.`
  if (median <= tooSlowMs && longest <= slowMs)
    return report.ok('round-trip', found, `That is little of a ttl of ${ttlMs} ms.`)
  const severe = median > tooSlowMs ? report.critical : report.warning
  return severe(
    'round-trip',
    found,
    meaning,
    `Take a ttl of at least ${Math.ceil(ttlPerTrip * longest)} ms, or ${remedy}.`,
  )
}

import { sleep, type Clock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'

/** Readings in each of two groups: the quickest of a group says most. */
const READINGS = 4
/** Between the groups: long enough to tell a hundredth of speed from a hiccup, short enough to be waited for. */
const GAP_MS = 600
/** So far apart, tokens of a server that takes over after a failover may be behind those of the one before. */
const FAR_AHEAD_MS = 60_000

interface Range {
  readonly low: number
  readonly high: number
}

export interface ClockPlan {
  readonly clock: Clock
  readonly ttlMs: number
  readonly driftMs: number
  /** The server's clock now, in ms since 1970. */
  readonly read: () => Promise<number>
}

/** How far the server's clock is from ours, how fast it runs, and how long an answer takes. */
export async function clockFindings(prefix: string, plan: ClockPlan): Promise<readonly Finding[]> {
  const tripsMs: number[] = []
  const first = await offset(plan, tripsMs)
  const beganMs = plan.clock.monotonicMs()
  await sleep(plan.clock, GAP_MS)
  const second = await offset(plan, tripsMs)
  const passedMs = plan.clock.monotonicMs() - beganMs
  // What it must have gained at least, whatever the answers' ways took.
  const gained = Math.max(second.low - first.high, 0) / passedMs
  const lostPart = Math.max(first.low - second.high, 0) / passedMs
  const aheadMs = Math.round((second.low + second.high) / 2 + plan.clock.monotonicMs() - plan.clock.wallMs())
  return [speed(prefix, plan, gained, lostPart), distance(prefix, aheadMs), roundTrip(prefix, plan, tripsMs)]
}

/** The server's clock less our monotonic one lies between `server - heard` and `server - sent`, in every reading. */
async function offset({ clock, read }: ClockPlan, tripsMs: number[]): Promise<Range> {
  let low = -Infinity
  let high = Infinity
  for (let i = 0; i < READINGS; i++) {
    const sentMs = clock.monotonicMs()
    const serverMs = await read()
    const heardMs = clock.monotonicMs()
    tripsMs.push(heardMs - sentMs)
    low = Math.max(low, serverMs - heardMs)
    high = Math.min(high, serverMs - sentMs)
  }
  return { low, high }
}

function speed(prefix: string, { ttlMs, driftMs }: ClockPlan, gained: number, lostPart: number): Finding {
  const id = `${prefix}/clock-speed`
  const allowed = driftMs / ttlMs
  if (gained > allowed) {
    return {
      id,
      severity: 'critical',
      found: `the server's clock gained ${percent(gained)} on ours while we watched, or was set ahead`,
      meaning: `a lease may end on the server while its holder still counts on it: ${percent(allowed)} is allowed for`,
      remedy: 'let the server keep its time by NTP with slewing; or allow for more with the option drift',
    }
  }
  if (lostPart > allowed) {
    return {
      id,
      severity: 'warning',
      found: `the server's clock lost ${percent(lostPart)} against ours while we watched, or was set back`,
      meaning: 'a lease that nobody renews ends later than it should',
      remedy: 'let the server keep its time by NTP with slewing',
    }
  }
  return {
    id,
    severity: 'ok',
    found: `the server's clock and ours kept step within ${percent(allowed)} for a moment`,
    meaning: 'leases end when their holders think so; a jump of the clock at another time would not be seen here',
  }
}

function distance(prefix: string, aheadMs: number): Finding {
  const far = Math.abs(aheadMs) > FAR_AHEAD_MS
  return {
    id: `${prefix}/clock`,
    severity: far ? 'note' : 'ok',
    found: `the server's clock is ${Math.abs(aheadMs)} ms ${aheadMs < 0 ? 'behind' : 'ahead of'} ours`,
    meaning: far
      ? 'leases are counted by the server alone; but tokens follow its clock, and a server that takes over with another clock and without the last grants could number lower'
      : 'leases are counted by the server alone, so this does not matter to them',
    ...(far ? { remedy: 'set the clocks by NTP' } : {}),
  }
}

function roundTrip(prefix: string, { ttlMs }: ClockPlan, tripsMs: readonly number[]): Finding {
  const slowestMs = Math.max(...tripsMs)
  const isSlow = slowestMs > ttlMs / 20
  return {
    id: `${prefix}/round-trip`,
    severity: isSlow ? 'warning' : 'ok',
    found: `an answer took up to ${slowestMs.toFixed(1)} ms`,
    meaning: isSlow
      ? `that is much of a ttl of ${ttlMs} ms: renewals may come too late`
      : `that is little of a ttl of ${ttlMs} ms`,
    ...(isSlow ? { remedy: 'use a longer ttl' } : {}),
  }
}

function percent(part: number): string {
  return `${(part * 100).toFixed(part < 0.01 ? 2 : 0)} %`
}

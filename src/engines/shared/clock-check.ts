import { sleep, type Clock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import { milliseconds, percent, type Findings } from './findings.ts'

/** A value that is surely between the two. */
export interface Interval {
  readonly low: number
  readonly high: number
}

export interface ClockPlan {
  readonly clock: Clock
  readonly ttlMs: number
  /** How much of the ttl clocks may eat up. */
  readonly driftMs: number
}

export interface MeasuredClock {
  /** The server's clock less our monotonic one, at the end. */
  readonly offsetMs: Interval
  /** The server's clock less our wall clock. */
  readonly aheadMs: Interval
  /** How much faster than ours it ran, per unit of time. */
  readonly faster: Interval
  /** Over how long that was watched. */
  readonly watchedMs: number
  /** It cannot have run evenly: two readings contradict each other by this much. */
  readonly jumpedMs: number
}

export interface ClockReadings {
  readonly tripsMs: readonly number[]
  /** Undefined when the server did not tell its time in every answer. */
  readonly measured: MeasuredClock | undefined
}

/** Readings are taken in two groups: the quickest of a group bounds the offset, the groups' distance in time the speed. */
const READINGS = 8
/** A slow server is read less often instead of longer. */
const GROUP_MS = 1500
/** Bounds of the time between the groups: long enough against a hiccup, short enough to be waited for. */
const LEAST_GAP_MS = 500
const MOST_GAP_MS = 3000
/** The wall clock is read in whole milliseconds. */
const WALL_GRAIN_MS = 1

interface Reading {
  readonly sentMs: number
  readonly heardMs: number
  readonly serverMs: number | undefined
}

/**
 * Compares the server's clock with ours. `read` asks the server for its time, in ms since 1970, and returns anything but a number
 * when it does not tell.
 *
 * A reading says: somewhere between sending and hearing, the server's clock showed this. So its offset lies between
 * `server - heard` and `server - sent`, however long the way there and back took, and within every reading's bounds at once.
 */
export async function measureClock(read: () => Promise<number | undefined>, plan: ClockPlan): Promise<ClockReadings> {
  const { clock } = plan
  const group = async (): Promise<Reading[]> => {
    const readings: Reading[] = []
    do {
      const sentMs = clock.monotonicMs()
      const serverMs = await read()
      readings.push({ sentMs, heardMs: clock.monotonicMs(), serverMs })
    } while (readings.length < READINGS && readings.at(-1)!.heardMs - readings[0]!.sentMs < GROUP_MS)
    return readings
  }
  const first = await group()
  await sleep(clock, gapMs(Math.min(...first.map(tripMs)), plan))
  const second = await group()
  const all = [...first, ...second]
  const isTold = all.every(({ serverMs }) => Number.isFinite(serverMs))
  return { tripsMs: all.map(tripMs), measured: isTold ? compared(first, second, plan) : undefined }
}

/** As long as it takes to resolve the allowance four times over, if that can be waited for at all. */
function gapMs(quickestMs: number, { driftMs, ttlMs }: ClockPlan): number {
  const neededMs = (4 * 2 * quickestMs * ttlMs) / driftMs
  return neededMs <= MOST_GAP_MS ? Math.max(LEAST_GAP_MS, neededMs) : LEAST_GAP_MS
}

function compared(first: readonly Reading[], second: readonly Reading[], plan: ClockPlan): MeasuredClock {
  const [before, after] = [offsetOf(first, plan), offsetOf(second, plan)]
  // Read between two readings of the other clock, since we may be interrupted at any point.
  const earlier = plan.clock.monotonicMs()
  const wallMs = plan.clock.wallMs()
  const later = plan.clock.monotonicMs()
  return {
    offsetMs: after,
    aheadMs: minus(after, { low: wallMs - later, high: wallMs + WALL_GRAIN_MS - earlier }),
    faster: per(
      minus(after, before),
      second[0]!.sentMs - first.at(-1)!.heardMs,
      second.at(-1)!.heardMs - first[0]!.sentMs,
    ),
    watchedMs: second[0]!.sentMs - first[0]!.sentMs,
    jumpedMs: Math.max(before.jumpedMs, after.jumpedMs),
  }
}

function offsetOf(
  readings: readonly Reading[],
  { driftMs, ttlMs }: ClockPlan,
): Interval & { readonly jumpedMs: number } {
  const least = Math.max(...readings.map(({ serverMs, heardMs }) => serverMs! - heardMs))
  const most = Math.min(...readings.map(({ serverMs, sentMs }) => serverMs! - sentMs))
  const tookMs = readings.at(-1)!.heardMs - readings[0]!.sentMs
  // Bounds that contradict each other by less than the drift that is allowed are no jump: NTP slews a clock.
  const jumpedMs = least - most > (tookMs * driftMs) / ttlMs ? least - most : 0
  return { low: Math.min(least, most), high: Math.max(least, most), jumpedMs }
}

/** Only against our own clock can a difference do harm: that is the clock by which validity ends. */
export function checkClockSpeed(report: Findings, id: string, measured: MeasuredClock, plan: ClockPlan): Finding {
  const harm = 'A lease may end on the server before its holder knows: two holders.'
  const remedy =
    'Let NTP slew the clock instead of setting it (chrony: no makestep after the start), and look at the hypervisor.'
  // A smaller jump is what the allowance is for; machines set their clocks by fractions of a millisecond all the time.
  if (measured.jumpedMs > plan.driftMs) {
    const found = `Its clock jumped by at least ${milliseconds(measured.jumpedMs)} while it was watched.`
    return report.critical(id, found, harm, remedy)
  }
  const finding = compareSpeeds(report, id, { whose: 'Its clock', than: 'this process', ...measured }, plan)
  if (finding.severity !== 'warning' || measured.faster.low < 0) return finding
  return { ...finding, severity: 'critical', meaning: `${finding.meaning} ${harm}`, remedy }
}

export function compareSpeeds(
  report: Findings,
  id: string,
  { whose, than, faster, watchedMs }: Pick<MeasuredClock, 'faster' | 'watchedMs'> & { whose: string; than: string },
  { driftMs, ttlMs }: ClockPlan,
): Finding {
  const allowed = driftMs / ttlMs
  const allowance = `the allowance of ${percent(allowed)} (${driftMs} ms of a ttl of ${ttlMs} ms)`
  const over = `over ${milliseconds(watchedMs)}`
  const found =
    atLeast(faster) === 0
      ? `${whose} ran as fast as that of ${than} ${over}, to the ${percent(atMost(faster))} that could be resolved.`
      : `${whose} ran ${shown(faster, percent)} ${faster.low > 0 ? 'faster' : 'slower'} than that of ${than} ${over}.`
  if (atLeast(faster) > allowed) {
    const remedy = 'See which of the two is wrong (chronyc tracking, timedatectl), and look at the hypervisor.'
    return report.warning(id, found, `That is more than ${allowance}.`, remedy)
  }
  if (atMost(faster) > allowed) {
    const meaning = `The network is too slow to tell whether that is within ${allowance}.`
    return report.note(id, found, meaning, 'Run this nearer to the server.')
  }
  return report.ok(id, found, `That is within ${allowance}, as far as a short look can tell.`)
}

/** How far a clock is from another one, as a sentence. */
export function offsetFound(whose: string, ahead: Interval, than: string): string {
  if (atLeast(ahead) === 0)
    return `${whose} and that of ${than} differ by no more than ${milliseconds(atMost(ahead))}, all that could be resolved.`
  return `${whose} is ${shown(ahead, milliseconds)} ${ahead.low > 0 ? 'ahead of' : 'behind'} that of ${than}.`
}

/** How far from 0 it is at least. */
export function atLeast({ low, high }: Interval): number {
  return Math.max(0, low, -high)
}

export function atMost({ low, high }: Interval): number {
  return Math.max(Math.abs(low), Math.abs(high))
}

export function minus(a: Interval, b: Interval): Interval {
  return { low: a.low - b.high, high: a.high - b.low }
}

/** Divided by a time that is itself only known to lie between two, so that the bounds stay bounds. */
function per({ low, high }: Interval, shortestMs: number, longestMs: number): Interval {
  return { low: low / (low > 0 ? longestMs : shortestMs), high: high / (high < 0 ? longestMs : shortestMs) }
}

function shown({ low, high }: Interval, unit: (value: number) => string): string {
  return `${unit(Math.abs(low + high) / 2)} (±${unit((high - low) / 2)})`
}

function tripMs({ sentMs, heardMs }: Reading): number {
  return heardMs - sentMs
}

import { CLAMP_US } from '../scripts.ts'
import type { CheckPlan, Diagnosis, Patient } from './patient.ts'
import { milliseconds, percent } from './patient.ts'

/** Surely between the two, in the unit of the thing. */
interface Range {
  readonly low: number
  readonly high: number
}

export interface Measured {
  /** Sorted. */
  readonly tripsMs: readonly number[]
  readonly clock: MeasuredClock | undefined
  /** Why there is no clock. */
  readonly refused: string | undefined
}

interface MeasuredClock {
  /** The server's clock less our monotonic one, at the end. */
  readonly offsetMs: Range
  /** The server's clock less our wall clock. */
  readonly aheadMs: Range
  /** How much faster than ours it ran, per unit of time, and over how long that was watched. */
  readonly faster: Range
  readonly watchedMs: number
  /** It can't have run evenly: two readings contradict each other by so much. */
  readonly jumpedMs: number
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
/** A node follows a client's clock only so far when it numbers a grant. */
const CLAMP_MS = CLAMP_US / 1000

interface Reading {
  readonly sentMs: number
  readonly heardMs: number
  readonly serverMs: number | undefined
}

/**
 * A reading says: somewhere between sending and hearing, the server's clock showed this. So its offset lies between
 * `server - heard` and `server - sent`, whatever the way there and back took, and in every reading's bounds at once.
 */
export async function measure(patient: Patient, plan: CheckPlan): Promise<Measured> {
  let refused: string | undefined
  const read = async (): Promise<Reading> => {
    const sentMs = plan.clock.monotonicMs()
    const reply = await patient.ask(refused === undefined ? 'TIME' : 'PING')
    const heardMs = plan.clock.monotonicMs()
    const serverMs = reply.kind === 'reply' && Array.isArray(reply.value) ? timeOf(reply.value) : undefined
    if (serverMs === undefined) refused ??= reply.kind === 'error' ? reply.message : 'TIME was answered with nonsense'
    return { sentMs, heardMs, serverMs }
  }
  const group = async (): Promise<Reading[]> => {
    const readings = [await read()]
    while (readings.length < READINGS && readings.at(-1)!.heardMs - readings[0]!.sentMs < GROUP_MS)
      readings.push(await read())
    return readings
  }
  const first = await group()
  const quickestMs = Math.min(...first.map(tripMs))
  await patient.pause(gapMs(quickestMs, plan))
  const second = await group()
  const tripsMs = [...first, ...second].map(tripMs).sort((a, b) => a - b)
  return { tripsMs, clock: refused === undefined ? clockOf(first, second, plan) : undefined, refused }
}

/** As long as it takes to resolve the allowance four times over, if that can be waited for at all. */
function gapMs(quickestMs: number, { driftMs, ttlMs }: CheckPlan): number {
  const neededMs = (4 * 2 * quickestMs * ttlMs) / driftMs
  return neededMs <= MOST_GAP_MS ? Math.max(LEAST_GAP_MS, neededMs) : LEAST_GAP_MS
}

function clockOf(first: readonly Reading[], second: readonly Reading[], plan: CheckPlan): MeasuredClock {
  const [before, after] = [offsetOf(first, plan), offsetOf(second, plan)]
  const watchedMs = second[0]!.sentMs - first[0]!.sentMs
  // Read between two readings of the other clock, since we may be interrupted at any point.
  const earlier = plan.clock.monotonicMs()
  const wallMs = plan.clock.wallMs()
  const later = plan.clock.monotonicMs()
  return {
    offsetMs: after,
    aheadMs: less(after, { low: wallMs - later, high: wallMs + WALL_GRAIN_MS - earlier }),
    faster: per(
      less(after, before),
      second[0]!.sentMs - first.at(-1)!.heardMs,
      second.at(-1)!.heardMs - first[0]!.sentMs,
    ),
    watchedMs,
    jumpedMs: Math.max(before.jumpedMs, after.jumpedMs),
  }
}

function offsetOf(readings: readonly Reading[], { driftMs, ttlMs }: CheckPlan): Range & { readonly jumpedMs: number } {
  const least = Math.max(...readings.map(({ serverMs, heardMs }) => serverMs! - heardMs))
  const most = Math.min(...readings.map(({ serverMs, sentMs }) => serverMs! - sentMs))
  const tookMs = readings.at(-1)!.heardMs - readings[0]!.sentMs
  // Bounds that contradict each other by less than the drift that is allowed are no jump: NTP slews a clock.
  const jumpedMs = least - most > (tookMs * driftMs) / ttlMs ? least - most : 0
  return { low: Math.min(least, most), high: Math.max(least, most), jumpedMs }
}

export function checkClock({ clock, refused }: Measured, plan: CheckPlan): readonly Diagnosis[] {
  if (clock === undefined) {
    const found = `could not find out its time: ${refused ?? 'no answer'}`
    const meaning = 'Scripts ask for it too: without TIME no lease is granted.'
    return [{ id: 'redis/clock-offset', severity: 'note', found, meaning, remedy: 'Allow the user +time.' }]
  }
  return [offset('its clock', clock.aheadMs, 'this process'), drift(clock, plan)]
}

interface Timed {
  readonly label: string
  readonly clock: MeasuredClock
}

/** The two clocks that disagree most, and the two whose speeds do. */
export function compareClocks(nodes: readonly Timed[], plan: CheckPlan): readonly Diagnosis[] {
  const pairs = nodes.flatMap((a, index) => nodes.slice(index + 1).map((b) => ({ a, b })))
  if (pairs.length === 0) return []
  const ahead = ({ a, b }: (typeof pairs)[number]): Range => less(a.clock.offsetMs, b.clock.offsetMs)
  const faster = ({ a, b }: (typeof pairs)[number]): Range => less(a.clock.faster, b.clock.faster)
  const apart = worst(pairs, ahead, CLAMP_MS)
  const uneven = worst(pairs, faster, plan.driftMs / plan.ttlMs)
  const watchedMs = Math.min(uneven.a.clock.watchedMs, uneven.b.clock.watchedMs)
  return [
    offset(`the clock of ${apart.a.label}`, ahead(apart), apart.b.label),
    speed(`the clock of ${uneven.a.label}`, { faster: faster(uneven), watchedMs }, uneven.b.label, plan),
  ]
}

/** First what is surely beyond the limit, then what may be. */
function worst<T>(all: readonly T[], range: (one: T) => Range, limit: number): T {
  const rank = (one: T): number => (surely(range(one)) > limit ? 2 : atMost(range(one)) > limit ? 1 : 0)
  const badness = (a: T, b: T): number => rank(b) - rank(a) || surely(range(b)) - surely(range(a))
  return [...all].sort(badness)[0]!
}

function offset(whose: string, ahead: Range, than: string): Diagnosis {
  const id = 'redis/clock-offset'
  const found =
    surely(ahead) === 0
      ? `${whose} and that of ${than} differ by no more than ${milliseconds(atMost(ahead))}, all that could be resolved`
      : `${whose} is ${shownRange(ahead, milliseconds)} ${ahead.low > 0 ? 'ahead of' : 'behind'} that of ${than}`
  if (surely(ahead) > CLAMP_MS) {
    return {
      id,
      severity: 'warning',
      found,
      meaning:
        `Leases are not touched: each server counts a lease's time by itself. But numbers follow clocks only up to ` +
        `${CLAMP_MS} ms, so the nodes come to different tokens and need a second round; and once a counter was forgotten, ` +
        'tokens surely grow only if that was longer ago than 4 s and this difference.',
      remedy: 'Keep the clocks right with NTP (chronyc tracking, timedatectl).',
    }
  }
  if (atMost(ahead) > CLAMP_MS) {
    const meaning = `The network is too slow to tell whether that is within the ${CLAMP_MS} ms which tokens bear without a second round.`
    return { id, severity: 'note', found, meaning }
  }
  return { id, severity: 'ok', found, meaning: `Within the ${CLAMP_MS} ms which tokens bear without a second round.` }
}

/** Only against our own clock can a difference do harm: that is the clock by which validity ends. */
function drift(clock: MeasuredClock, plan: CheckPlan): Diagnosis {
  const harm = 'A lease may run out on the server before its holder knows: two holders.'
  const remedy =
    'Let NTP slew the clock instead of setting it (chrony: no makestep after the start); look at the hypervisor.'
  // A smaller one is what the allowance is for; machines set their clocks by fractions of a millisecond all the time.
  if (clock.jumpedMs > plan.driftMs) {
    const found = `its clock jumped by at least ${milliseconds(clock.jumpedMs)} while it was watched`
    return { id: 'redis/clock-drift', severity: 'critical', found, meaning: harm, remedy }
  }
  const finding = speed('its clock', clock, 'this process', plan)
  if (finding.severity !== 'warning' || clock.faster.low < 0) return finding
  return { ...finding, severity: 'critical', meaning: `${finding.meaning} ${harm}`, remedy }
}

function speed(
  whose: string,
  { faster, watchedMs }: Pick<MeasuredClock, 'faster' | 'watchedMs'>,
  than: string,
  { driftMs, ttlMs }: CheckPlan,
): Diagnosis {
  const id = 'redis/clock-drift'
  const allowed = driftMs / ttlMs
  const allowance = `the allowance of ${percent(allowed)} (${driftMs} ms of a ttl of ${ttlMs} ms)`
  const over = `over ${milliseconds(watchedMs)}`
  const found =
    surely(faster) === 0
      ? `${whose} ran as fast as that of ${than} ${over}, to the ${percent(atMost(faster))} that could be resolved`
      : `${whose} ran ${shownRange(faster, percent)} ${faster.low > 0 ? 'faster' : 'slower'} than that of ${than} ${over}`
  if (surely(faster) > allowed) {
    const remedy = 'See which of the two is wrong (chronyc tracking, timedatectl); look at the hypervisor.'
    return { id, severity: 'warning', found, meaning: `That is more than ${allowance}.`, remedy }
  }
  if (atMost(faster) > allowed) {
    const meaning = `So slow a network can't tell whether that is within ${allowance}.`
    return { id, severity: 'note', found, meaning, remedy: 'Run this nearer to the server.' }
  }
  return { id, severity: 'ok', found, meaning: `Within ${allowance}, as far as a short look can tell.` }
}

export function checkRoundTrip({ tripsMs }: Measured, { ttlMs }: CheckPlan): Diagnosis {
  const id = 'redis/round-trip'
  const median = tripsMs[Math.floor(tripsMs.length / 2)]!
  const longest = tripsMs.at(-1)!
  const found = `median ${milliseconds(median)}, longest ${milliseconds(longest)} of ${tripsMs.length}; the ttl is ${ttlMs} ms`
  const remedy = `Take a ttl of at least ${Math.ceil(10 * longest)} ms, or servers nearer by.`
  if (median > ttlMs / 3) {
    const meaning =
      'A lease is renewed at a third of its ttl; an answer takes longer than that, so leases will be lost.'
    return { id, severity: 'critical', found, meaning, remedy }
  }
  if (longest > ttlMs / 10) {
    const meaning = 'Each round trip costs validity, and a tenth of the ttl is all the time that a node has to answer.'
    return { id, severity: 'warning', found, meaning, remedy }
  }
  return { id, severity: 'ok', found, meaning: 'Short against the ttl.' }
}

/** What TIME answers, in ms since 1970. */
export function timeOf([seconds, micros]: readonly unknown[]): number | undefined {
  const ms = Number(seconds) * 1000 + Number(micros) / 1000
  return Number.isFinite(ms) ? ms : undefined
}

function tripMs({ sentMs, heardMs }: Reading): number {
  return heardMs - sentMs
}

function less(a: Range, b: Range): Range {
  return { low: a.low - b.high, high: a.high - b.low }
}

/** Divided by a time that is itself only known to lie between two, so that the bounds stay bounds. */
function per({ low, high }: Range, shortestMs: number, longestMs: number): Range {
  return { low: low / (low > 0 ? longestMs : shortestMs), high: high / (high < 0 ? longestMs : shortestMs) }
}

/** How far from 0 it is at least, and at most. */
function surely({ low, high }: Range): number {
  return Math.max(0, low, -high)
}

function atMost({ low, high }: Range): number {
  return Math.max(Math.abs(low), Math.abs(high))
}

function shownRange({ low, high }: Range, unit: (value: number) => string): string {
  return `${unit(Math.abs(low + high) / 2)} (±${unit((high - low) / 2)})`
}

import type { Finding } from '../../../engine.ts'
import {
  atLeast,
  atMost,
  checkClockSpeed,
  compareSpeeds,
  measureClock,
  minus,
  offsetFound,
  type Interval,
  type MeasuredClock,
} from '../../shared/clock-check.ts'
import { findings, sentence, type Findings } from '../../shared/findings.ts'
import { checkRoundTrip } from '../../shared/round-trip.ts'
import { CLAMP_US } from '../scripts.ts'
import type { CheckedServer, RedisCheckPlan } from './server.ts'

export interface Measured {
  readonly tripsMs: readonly number[]
  readonly clock: MeasuredClock | undefined
  /** Why there is no clock. */
  readonly refused: string | undefined
}

/** A node follows a client's clock only this far when it numbers a grant. */
const CLAMP_MS = CLAMP_US / 1000

export async function measure(server: CheckedServer, plan: RedisCheckPlan): Promise<Measured> {
  let refused: string | undefined
  const { tripsMs, measured } = await measureClock(async () => {
    const reply = await server.ask(refused === undefined ? 'TIME' : 'PING')
    const serverMs = reply.kind === 'reply' && Array.isArray(reply.value) ? timeOf(reply.value) : undefined
    if (serverMs === undefined) refused ??= reply.kind === 'error' ? reply.message : 'TIME was answered with nonsense'
    return serverMs
  }, plan)
  return { tripsMs, clock: measured, refused }
}

export function checkClock(report: Findings, { clock, refused }: Measured, plan: RedisCheckPlan): readonly Finding[] {
  if (clock === undefined) {
    const found = sentence(`Could not find out its time: ${refused ?? 'no answer'}`)
    const meaning = 'Scripts ask for the time, too: without TIME no lease is granted.'
    return [report.note('clock-offset', found, meaning, 'Allow the user +time.')]
  }
  return [
    offset(report, 'Its clock', clock.aheadMs, 'this process'),
    checkClockSpeed(report, 'clock-drift', clock, plan),
  ]
}

interface TimedNode {
  readonly label: string
  readonly clock: MeasuredClock
}

/** The two clocks that disagree most, and the two whose speeds do. */
export function compareClocks(nodes: readonly TimedNode[], plan: RedisCheckPlan): readonly Finding[] {
  const pairs = nodes.flatMap((a, index) => nodes.slice(index + 1).map((b) => ({ a, b })))
  if (pairs.length === 0) return []
  const ahead = ({ a, b }: (typeof pairs)[number]): Interval => minus(a.clock.offsetMs, b.clock.offsetMs)
  const faster = ({ a, b }: (typeof pairs)[number]): Interval => minus(a.clock.faster, b.clock.faster)
  const apart = worst(pairs, ahead, CLAMP_MS)
  const uneven = worst(pairs, faster, plan.driftMs / plan.ttlMs)
  const watchedMs = Math.min(uneven.a.clock.watchedMs, uneven.b.clock.watchedMs)
  const speeds = { whose: `The clock of ${uneven.a.label}`, than: uneven.b.label, faster: faster(uneven), watchedMs }
  const report = findings('redis')
  return [
    offset(report, `The clock of ${apart.a.label}`, ahead(apart), apart.b.label),
    compareSpeeds(report, 'clock-drift', speeds, plan),
  ]
}

/** First what is surely beyond the limit, then what may be. */
function worst<T>(all: readonly T[], interval: (one: T) => Interval, limit: number): T {
  const rank = (one: T): number => (atLeast(interval(one)) > limit ? 2 : atMost(interval(one)) > limit ? 1 : 0)
  const badness = (a: T, b: T): number => rank(b) - rank(a) || atLeast(interval(b)) - atLeast(interval(a))
  return [...all].sort(badness)[0]!
}

function offset(report: Findings, whose: string, ahead: Interval, than: string): Finding {
  const id = 'clock-offset'
  const found = offsetFound(whose, ahead, than)
  if (atLeast(ahead) > CLAMP_MS) {
    return report.warning(
      id,
      found,
      "Leases are not affected: each server counts a lease's time by itself. But tokens follow clocks only up to " +
        `${CLAMP_MS} ms, so the nodes come to different tokens and need a second round. And once a counter was ` +
        'forgotten, tokens surely grow only if that was longer ago than 4 s and this difference.',
      'Keep the clocks right with NTP (chronyc tracking, timedatectl).',
    )
  }
  const limit = `the ${CLAMP_MS} ms that tokens bear without a second round`
  if (atMost(ahead) > CLAMP_MS) {
    return report.note(id, found, `The network is too slow to tell whether that is within ${limit}.`)
  }
  return report.ok(id, found, `That is within ${limit}.`)
}

export function checkTrips(report: Findings, { tripsMs }: Measured, { ttlMs }: RedisCheckPlan): Finding {
  return checkRoundTrip(report, tripsMs, {
    ttlMs,
    slowMs: ttlMs / 10,
    tooSlowMs: ttlMs / 3,
    meaning:
      'A node has a tenth of the ttl to answer, and each round trip costs validity. A lease is renewed at a third of its ' +
      'ttl: where answers take longer than that, leases are lost.',
    ttlPerTrip: 10,
    remedy: 'move the servers nearer',
  })
}

/** What TIME answers, in ms since 1970. */
export function timeOf([seconds, micros]: readonly unknown[]): number | undefined {
  const ms = Number(seconds) * 1000 + Number(micros) / 1000
  return Number.isFinite(ms) ? ms : undefined
}

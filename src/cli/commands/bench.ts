import { sleep, systemClock } from '../../clock.ts'
import type { Locks } from '../../index.ts'
import { systemRandom } from '../../random.ts'
import { EXIT, Failure, usage } from '../exit-codes.ts'
import { watchPauses } from '../pauses.ts'
import { withLocks, type Call } from '../session.ts'
import { table } from '../table.ts'
import { timeOf } from '../time.ts'

/** Well within the shortest of the default ttls. */
const LONGEST_LOOK_MS = 5000
/** A pause of the process may cost a shorter lease. */
const LEAST_TTL_MS = 5000
/**
 * A renewal is due at a third of the ttl. After a pause of a quarter that began right then, five twelfths are left to renew in.
 */
const TTL_PER_PAUSE = 4
/** Of a program that was stopped for longer, no ttl keeps the lease. */
const LONGEST_PAUSE_MS = 3_600_000

/** Latency of the engine from here, pauses of this process, and a ttl that suits both. */
export async function bench(call: Call): Promise<number> {
  const { line, output, signals } = call
  const count = Number(line.options.text('count') ?? 200)
  if (!Number.isInteger(count) || count < 10 || count > 1_000_000)
    throw usage(`--count: expected 10 to 1000000, got '${line.options.text('count')}'`)
  const forMs = timeOf(line.options.text('for') ?? '3s', '--for', { minMs: 500, maxMs: LONGEST_LOOK_MS })
  const told = line.options.text('pause')
  const toldMs = told === undefined ? 0 : timeOf(told, '--pause', { maxMs: LONGEST_PAUSE_MS })
  return withLocks(call, async ({ locks, url }) => {
    const pauses = watchPauses()
    // Nobody else's: the name is drawn anew each time.
    const resource = `ringfence-bench:${systemRandom.id()}`
    const { acquire, release } = await latencies(locks, resource, count, signals.interrupted)
    const drift = await clockDrift(locks, resource, forMs, signals.interrupted)
    const { longestMs, longestGcMs } = pauses()
    const pauseMs = Math.max(longestMs, toldMs)
    const ttlMs = recommendedTtlMs(acquire.p99, drift, pauseMs)
    const allowedMs = locks.engine.limits.driftMs(ttlMs)
    const isCovered = Math.abs(drift.part) * ttlMs <= allowedMs + drift.errorMs
    if (output.json) {
      output.object({
        engine: locks.engine.name,
        url,
        count,
        acquireMs: acquire,
        releaseMs: release,
        drift,
        pause: { longestMs, longestGcMs, toldMs },
        recommendedTtlMs: ttlMs,
        driftAllowed: isCovered,
      })
      return EXIT.ok
    }
    for (const text of table([['ms', 'P50', 'P99', 'WORST'], row('acquire', acquire), row('release', release)]))
      output.line(text)
    output.line(
      `clock that ends leases: ${Math.abs(drift.part * 100).toFixed(3)} % ${drift.part < 0 ? 'slower' : 'faster'} than ours, measured to ${(drift.errorPart * 100).toFixed(3)} %`,
    )
    const paused = `${longestMs.toFixed(0)} ms, of garbage collection ${longestGcMs.toFixed(0)} ms`
    const known = toldMs > 0 ? `; of your program ${toldMs} ms` : ' (--pause says how long your own program stops)'
    output.line(`longest pause of this process: ${paused}${known}`)
    output.line(`recommended ttl: ${ttlMs / 1000} s at least (${ttlReason(ttlMs, pauseMs)})`)
    if (!isCovered)
      output.complain('the clock runs further off than the engine allows for; ringfence doctor says what to do')
    return EXIT.ok
  })
}

function row(name: string, { p50, p99, worst }: Percentiles): string[] {
  return [name, ...[p50, p99, worst].map((ms) => ms.toFixed(2))]
}

interface Percentiles {
  readonly p50: number
  readonly p99: number
  readonly worst: number
}

async function latencies(
  locks: Locks,
  resource: string,
  count: number,
  signal: AbortSignal,
): Promise<{ acquire: Percentiles; release: Percentiles }> {
  const acquire: number[] = []
  const release: number[] = []
  // The first ones pay for connections and scripts.
  const warmUp = Math.min(10, count)
  for (let round = -warmUp; round < count; round++) {
    signal.throwIfAborted()
    const began = systemClock.monotonicMs()
    const lease = await locks.acquire(resource, { wait: 0 })
    const granted = systemClock.monotonicMs()
    await lease.release()
    if (round < 0) continue
    acquire.push(granted - began)
    release.push(systemClock.monotonicMs() - granted)
  }
  return { acquire: percentiles(acquire), release: percentiles(release) }
}

export function percentiles(times: readonly number[]): Percentiles {
  const sorted = [...times].sort((some, other) => some - other)
  const at = (part: number): number => sorted[Math.min(Math.ceil(sorted.length * part), sorted.length) - 1]!
  return { p50: at(0.5), p99: at(0.99), worst: at(1) }
}

interface Drift {
  /** How much faster (above 0) or slower the lease's clock runs than ours, as a part. */
  readonly part: number
  /** What the measurement itself may be off by, as a part and over its time. */
  readonly errorPart: number
  readonly errorMs: number
}

/** Watches a lease run out: what the engine says is left against what our clock says has passed. Works on every engine. */
async function clockDrift(locks: Locks, resource: string, forMs: number, signal: AbortSignal): Promise<Drift> {
  await using lease = await locks.acquire(resource, { wait: 0, renew: false })
  const first = await look(locks, lease.resources[0]!)
  await sleep(systemClock, forMs, signal)
  signal.throwIfAborted()
  const last = await look(locks, lease.resources[0]!)
  const passedMs = last.atMs - first.atMs
  // A whole millisecond of each answer is rounding.
  const errorMs = first.errorMs + last.errorMs + 1
  return { part: (first.remainingMs - last.remainingMs) / passedMs - 1, errorPart: errorMs / passedMs, errorMs }
}

interface Look {
  readonly atMs: number
  readonly errorMs: number
  readonly remainingMs: number
}

/** The quickest of a few answers: the less time it took, the better it is known when it was true. */
async function look(locks: Locks, resource: string): Promise<Look> {
  let best: Look | undefined
  for (let round = 0; round < 5; round++) {
    const began = systemClock.monotonicMs()
    for await (const { remainingMs } of locks.inspect(resource)) {
      const errorMs = (systemClock.monotonicMs() - began) / 2
      if (remainingMs !== undefined && errorMs < (best?.errorMs ?? Infinity))
        best = { atMs: began + errorMs, errorMs, remainingMs }
    }
  }
  if (best === undefined) throw new Failure(EXIT.engine, 'the engine does not say how long a lease lasts')
  return best
}

/**
 * A renewal is due after a third of the ttl, and there must be time to try it again several times, on a bad day: a
 * third is fifty p99s, and a clock that is off adds its share. The longest pause fits in a quarter. Never below 5 s: a process that
 * was not seen to pause may do so.
 */
export function recommendedTtlMs(p99Ms: number, { part }: Pick<Drift, 'part'>, pauseMs: number): number {
  const ms = Math.max(p99Ms * 150 * (1 + Math.abs(part)), pauseMs * TTL_PER_PAUSE)
  return Math.max(LEAST_TTL_MS, Math.ceil(ms / 1000) * 1000)
}

/** Why it is not less. */
export function ttlReason(ttlMs: number, pauseMs: number): string {
  if (ttlMs <= LEAST_TTL_MS)
    return 'p99 and pauses allow less, but a pause that was not seen would cost a shorter lease'
  return ttlMs - pauseMs * TTL_PER_PAUSE < 1000
    ? `the longest pause is a quarter of it, so that a renewal which it delays still comes in time`
    : 'a third of it is fifty times the p99, so that a renewal has time to be tried again'
}

import type { History, Verdict } from '../history.ts'
import { exclusionBroken } from './assumptions.ts'

/** What clocks may be apart in a time that both measure, and what a server rounds. */
const DRIFT = { part: 0.01, ms: 2 }

function shortest(ms: number): number {
  return ms * (1 - DRIFT.part) - DRIFT.ms
}

/**
 * Where a job of `once` has begun, nobody else has the resource before its `atLeast` is over, also if its locks are closed. A
 * job that ends in order has the servers keep the resource for the rest. If its lease was lost, or nobody knows whether the
 * rest was set, the ttl that was granted is certain and nothing else, and that counts from the request. A person may end it before.
 */
export function once(history: History): Verdict {
  const checker = 'once'
  const jobs = history.of('once')
  const record = wrongRecord(history)
  if (record !== undefined) return { checker, verdict: 'false', ...record }
  if (jobs.length === 0) return { checker, verdict: 'unknown', why: 'no job was run once' }
  for (const { at, process, owner, resource, atLeastMs, ttlMs } of jobs) {
    const isSet = history.of('rests').some((rest) => rest.owner === owner && rest.isSet)
    const askedMs = history.of('send').find((sent) => sent.owner === owner)?.at ?? at
    const forcedMs = history.of('forced').find((event) => event.owner === owner)?.at ?? Infinity
    const untilMs = Math.min(at + shortest(atLeastMs), isSet ? Infinity : askedMs + shortest(ttlMs), forcedMs)
    // A process that stood still when it was granted its lease may find it over.
    const next = history
      .of('holds')
      .filter((other) => other.untilMs > other.at)
      .find((other) => other.at > at && other.owner !== owner && other.resources.includes(resource))
    if (next === undefined || next.at >= untilMs) continue
    const why = `${next.process} got ${resource} ${Math.round(next.at - at)} ms after a job of ${process} had begun that keeps it for ${atLeastMs} ms`
    const broken = exclusionBroken(history)
    if (broken !== undefined && broken.at <= next.at)
      return { checker, verdict: 'unknown', why: `${why}; before, ${broken.why}` }
    return { checker, verdict: 'false', why, at: next.at, owners: [owner, next.owner] }
  }
  return { checker, verdict: 'true' }
}

/** A run is recorded once as begun and once as ended, and as done only if its job has begun. */
function wrongRecord(history: History): { why: string; at: number; owners: readonly string[] } | undefined {
  const begun = new Set(history.of('once').map(({ owner }) => owner))
  const recorded = new Set<string>()
  for (const { at, process, owner, resource, outcome } of history.of('run')) {
    const part = `${owner} ${outcome === 'began'}`
    const wrong = recorded.has(part)
      ? 'recorded twice'
      : outcome === 'done' && !begun.has(owner)
        ? 'not begun'
        : undefined
    if (wrong !== undefined)
      return { at, owners: [owner], why: `a run of ${process} on ${resource} is told as ${outcome}, and was ${wrong}` }
    recorded.add(part)
  }
  return undefined
}

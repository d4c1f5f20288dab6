import type { History, Verdict } from '../history.ts'
import { excuse, exclusionBreaks } from './assumptions.ts'
import { leasesOf, type HeldLease } from './leases.ts'

/** At most one writer, or only readers, believe in a lease at a time, each within the validity that its own clock tells. */
export function exclusion(history: History): Verdict {
  const checker = 'exclusion'
  const leases = leasesOf(history)
  if (leases.length === 0) return { checker, verdict: 'unknown', why: 'nobody got a lease' }
  const broken = exclusionBreaks(history)
  let excused: string | undefined
  for (const [first, second] of overlaps(leases)) {
    const at = second.fromMs
    const overMs = Math.min(first.endMs, second.endMs) - at
    const seen = `${second.process} held ${second.resources.join(', ')} for ${overMs.toFixed(1)} ms while ${first.process} did`
    const why = excuse(broken, at, Math.min(first.beganMs, second.beganMs))?.why
    if (why === undefined) return { checker, verdict: 'false', why: seen, at, owners: [first.owner, second.owner] }
    excused ??= `${seen}; before, ${why}`
  }
  return excused === undefined ? { checker, verdict: 'true' } : { checker, verdict: 'unknown', why: excused }
}

/** The first such moment. */
export function overlap(leases: readonly HeldLease[]): readonly [HeldLease, HeldLease] | undefined {
  return overlaps(leases).next().value ?? undefined
}

/** Two leases of one resource that were held at once, and not both shared. */
function* overlaps(leases: readonly HeldLease[]): Generator<readonly [HeldLease, HeldLease], undefined> {
  const last = { writers: new Map<string, HeldLease>(), readers: new Map<string, HeldLease>() }
  for (const lease of [...leases].sort((a, b) => a.fromMs - b.fromMs)) {
    const alike = lease.shared ? last.readers : last.writers
    for (const resource of lease.resources) {
      for (const before of [last.writers.get(resource), lease.shared ? undefined : last.readers.get(resource)]) {
        // To the microsecond: a hand-over within one process ends one lease and begins the next in the same moment.
        if (before !== undefined && before.endMs > lease.fromMs + 0.001 && lease.endMs > lease.fromMs)
          yield [before, lease]
      }
      if (lease.endMs > (alike.get(resource)?.endMs ?? -Infinity)) alike.set(resource, lease)
    }
  }
  return undefined
}

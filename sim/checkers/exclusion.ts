import type { History, Verdict } from '../history.ts'
import { exclusionBroken } from './assumptions.ts'
import { leasesOf, type HeldLease } from './leases.ts'

/** At most one writer, or only readers, believe in a lease at a time, each within the validity that its own clock tells. */
export function exclusion(history: History): Verdict {
  const checker = 'exclusion'
  const leases = leasesOf(history)
  if (leases.length === 0) return { checker, verdict: 'unknown', why: 'nobody got a lease' }
  const both = overlap(leases)
  if (both === undefined) return { checker, verdict: 'true' }
  const [first, second] = both
  const broken = exclusionBroken(history)
  const at = second.fromMs
  const overMs = Math.min(first.endMs, second.endMs) - at
  const seen = `${second.process} held ${second.resources.join(', ')} for ${overMs.toFixed(1)} ms while ${first.process} did`
  if (broken !== undefined && broken.at <= at)
    return { checker, verdict: 'unknown', why: `${seen}; before, ${broken.why}` }
  return { checker, verdict: 'false', why: seen, at, owners: [first.owner, second.owner] }
}

/** Two leases of one resource that were held at once, and not both shared: the first such moment. */
export function overlap(leases: readonly HeldLease[]): readonly [HeldLease, HeldLease] | undefined {
  const last = { writers: new Map<string, HeldLease>(), readers: new Map<string, HeldLease>() }
  for (const lease of [...leases].sort((a, b) => a.fromMs - b.fromMs)) {
    const alike = lease.shared ? last.readers : last.writers
    for (const resource of lease.resources) {
      for (const before of [last.writers.get(resource), lease.shared ? undefined : last.readers.get(resource)]) {
        // To the microsecond: a hand-over within one process ends one lease and begins the next in the same moment.
        if (before !== undefined && before.endMs > lease.fromMs + 0.001 && lease.endMs > lease.fromMs)
          return [before, lease]
      }
      if (lease.endMs > (alike.get(resource)?.endMs ?? -Infinity)) alike.set(resource, lease)
    }
  }
  return undefined
}

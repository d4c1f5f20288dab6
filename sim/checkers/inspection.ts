import type { History, Verdict } from '../history.ts'
import { exclusionBroken } from './assumptions.ts'
import { leasesOf } from './leases.ts'

/** An inspection names everybody who held a lease from its beginning to its end. */
export function inspection(history: History): Verdict {
  const checker = 'inspection'
  const looks = history.of('inspected')
  if (looks.length === 0) return { checker, verdict: 'unknown', why: 'nobody inspected' }
  const leases = leasesOf(history)
  for (const { at, process, fromMs, resources, owners } of looks) {
    const missing = leases.find(
      (lease) =>
        lease.fromMs <= fromMs &&
        lease.endMs > at &&
        lease.resources.some((resource) => resources.includes(resource)) &&
        !owners.includes(lease.owner),
    )
    if (missing === undefined) continue
    const why = `${process} inspected ${resources.join(', ')} and did not see the lease that ${missing.process} held`
    const broken = exclusionBroken(history)
    if (broken !== undefined && broken.at <= at)
      return { checker, verdict: 'unknown', why: `${why}; before, ${broken.why}` }
    return { checker, verdict: 'false', why, at, owners: [missing.owner] }
  }
  return { checker, verdict: 'true' }
}

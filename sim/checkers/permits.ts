import type { History, Verdict } from '../history.ts'
import { POOL } from '../plan.ts'
import { exclusionBroken } from './assumptions.ts'
import { leasesOf, type HeldLease } from './leases.ts'

/** No more than the permits of a semaphore are held at a time, whatever their numbers; and none that is not one of them. */
export function permits(history: History): Verdict {
  const checker = 'permits'
  const most = history.setup.permits
  const leases = leasesOf(history).filter(({ resources }) => resources[0]!.startsWith(`${POOL}#`))
  if (leases.length === 0) return { checker, verdict: 'unknown', why: 'nobody got a permit' }
  let held: HeldLease[] = []
  for (const lease of leases.sort((a, b) => a.fromMs - b.fromMs)) {
    const { process, fromMs: at, resources } = lease
    if (Number(resources[0]!.slice(POOL.length + 1)) >= most) {
      const why = `${process} got ${resources[0]}, but there are ${most} permits`
      return { checker, verdict: 'false', why, at, owners: [lease.owner] }
    }
    if (lease.endMs <= at) continue
    // To the microsecond, as for exclusion.
    held = held.filter(({ endMs }) => endMs > at + 0.001)
    held.push(lease)
    if (held.length <= most) continue
    const why = `${held.map((one) => one.process).join(', ')} held permits at the same time, of which there are ${most}`
    const broken = exclusionBroken(history)
    if (broken !== undefined && broken.at <= at)
      return { checker, verdict: 'unknown', why: `${why}; before, ${broken.why}` }
    return { checker, verdict: 'false', why, at, owners: held.map(({ owner }) => owner) }
  }
  return { checker, verdict: 'true' }
}

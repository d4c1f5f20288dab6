import type { History, Verdict } from '../history.ts'
import { orderBroken } from './assumptions.ts'
import { leasesOf, type HeldLease } from './leases.ts'

/**
 * Tokens of a resource are unique, and grow from one acquisition to every one that began after it was finished. Readers may have the same
 * token.
 */
export function tokens(history: History): Verdict {
  const checker = 'tokens'
  const leases = leasesOf(history)
  if (leases.length === 0) return { checker, verdict: 'unknown', why: 'nobody got a lease' }
  const broken = orderBroken(history)
  for (const resource of history.setup.resources) {
    const found = disorder(leases.filter(({ resources }) => resources.includes(resource)))
    if (found === undefined) continue
    const [first, second] = found
    const relation = first.token === second.token ? 'the same token as' : 'a lower token than'
    const seen = `${second.process} got ${relation} ${first.process} before it for ${resource}: ${second.token} after ${first.token}`
    const at = second.fromMs
    if (broken !== undefined && broken.at <= at)
      return { checker, verdict: 'unknown', why: `${seen}; before, ${broken.why}` }
    return { checker, verdict: 'false', why: seen, at, owners: [first.owner, second.owner] }
  }
  return { checker, verdict: 'true' }
}

function disorder(leases: readonly HeldLease[]): readonly [HeldLease, HeldLease] | undefined {
  const byToken = new Map<number, HeldLease>()
  const finished = [...leases].sort((a, b) => a.fromMs - b.fromMs)
  for (const lease of finished) {
    const other = byToken.get(lease.token)
    if (other !== undefined && !(other.shared && lease.shared)) return [other, lease]
    byToken.set(lease.token, lease)
  }
  // Among those that were finished when this one began, the highest token counts.
  let next = 0
  let highest: HeldLease | undefined
  for (const lease of [...leases].sort((a, b) => a.beganMs - b.beganMs)) {
    for (let done = finished[next]; done !== undefined && done.fromMs < lease.beganMs; done = finished[++next]) {
      if (highest === undefined || done.token > highest.token) highest = done
    }
    if (highest !== undefined && lease.token < highest.token) return [highest, lease]
  }
  return undefined
}

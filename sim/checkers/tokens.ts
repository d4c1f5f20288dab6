import type { History, Verdict } from '../history.ts'
import { excuse, orderBreaks } from './assumptions.ts'
import { leasesOf, type HeldLease } from './leases.ts'

/**
 * Tokens of a resource are unique, and grow from one acquisition to every one that began after it was finished. Readers may have the same
 * token.
 */
export function tokens(history: History): Verdict {
  const checker = 'tokens'
  const leases = leasesOf(history)
  if (leases.length === 0) return { checker, verdict: 'unknown', why: 'nobody got a lease' }
  const broken = orderBreaks(history)
  let excused: string | undefined
  for (const resource of history.setup.resources) {
    for (const [first, second] of disorder(leases.filter(({ resources }) => resources.includes(resource)))) {
      const relation = first.token === second.token ? 'the same token as' : 'a lower token than'
      const seen = `${second.process} got ${relation} ${first.process} before it for ${resource}: ${second.token} after ${first.token}`
      const at = second.fromMs
      const why = excuse(broken, at, second.beganMs)?.why
      if (why === undefined) return { checker, verdict: 'false', why: seen, at, owners: [first.owner, second.owner] }
      excused ??= `${seen}; before, ${why}`
    }
  }
  return excused === undefined ? { checker, verdict: 'true' } : { checker, verdict: 'unknown', why: excused }
}

function* disorder(leases: readonly HeldLease[]): Generator<readonly [HeldLease, HeldLease], undefined> {
  const byToken = new Map<number, HeldLease>()
  const finished = [...leases].sort((a, b) => a.fromMs - b.fromMs)
  for (const lease of finished) {
    const other = byToken.get(lease.token)
    if (other !== undefined && !(other.shared && lease.shared)) yield [other, lease]
    byToken.set(lease.token, lease)
  }
  // Among those that were finished when this one began, the highest token counts.
  let next = 0
  let highest: HeldLease | undefined
  for (const lease of [...leases].sort((a, b) => a.beganMs - b.beganMs)) {
    for (let done = finished[next]; done !== undefined && done.fromMs < lease.beganMs; done = finished[++next]) {
      if (highest === undefined || done.token > highest.token) highest = done
    }
    if (highest !== undefined && lease.token < highest.token) yield [highest, lease]
  }
  return undefined
}

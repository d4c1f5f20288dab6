import type { EventOf, History, Verdict } from '../history.ts'

/**
 * A call inside of the work under a lease is not refused because of that lease. It joins it, with the same token, and the end of
 * that call is not the end of the lease: nothing is released before the outer call ends it.
 */
export function nesting(history: History): Verdict {
  const checker = 'nesting'
  const nested = history.of('nested')
  if (nested.length === 0) return { checker, verdict: 'unknown', why: 'no call was inside of another' }
  const joined = new Map<string, EventOf<'nested'>>()
  for (const event of nested) {
    const { process, owner, token, inner, outcome, isHeld, at } = event
    const why =
      outcome === 'joined' && inner !== token
        ? `a call of ${process} joined the lease with token ${token} and got ${inner}`
        : outcome !== 'joined' && isHeld
          ? `a call of ${process} inside of the one that holds the lease ${outcome === 'own' ? 'got another one' : 'was refused'}`
          : undefined
    if (why !== undefined) return { checker, verdict: 'false', why, at, owners: [owner] }
    if (outcome === 'joined' && !joined.has(owner)) joined.set(owner, event)
  }
  const early = history.of('unnested').find(({ released }) => released)
  if (early !== undefined) {
    const why = `the lease of ${early.process} was released by a call inside of the one that holds it`
    return { checker, verdict: 'false', why, at: early.at, owners: [early.owner] }
  }
  const over = new Set<string>()
  const releasedOn = new Map<string, Set<string>>()
  const quorum = Math.floor(history.setup.nodes / 2) + 1
  for (const event of history.of('ends', 'signal', 'forced', 'exec')) {
    // A lease that is lost ends with its signal, one that a person ends with that; what the call around releases then may still be there on a node.
    if (event.kind !== 'exec') over.add(event.owner)
    else {
      const owner = event.what === 'handOver' ? event.former : event.what === 'release' ? event.owner : ''
      const first = joined.get(owner)
      if (first === undefined || over.has(owner) || event.at < first.at || !tookEffect(event)) continue
      // A node that had refused a claim, or confirmed nothing yet, is left by the winner: that ends nothing.
      const left = releasedOn.get(owner) ?? new Set()
      releasedOn.set(owner, left.add(event.node))
      if (left.size < quorum) continue
      const why = `${event.process} released a lease that a call had joined, before the call around it was done`
      return { checker, verdict: 'false', why, at: event.at, owners: [owner] }
    }
  }
  return { checker, verdict: 'true' }
}

/** A place in line that is given up on a node without the lease is answered by less than zero. */
function tookEffect({ reply: [reply] }: EventOf<'exec'>): boolean {
  return typeof reply === 'number' ? reply >= 0 : typeof reply === 'string'
}

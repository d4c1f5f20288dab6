import type { EventOf, History, Verdict } from '../history.ts'
import { orderBroken } from './assumptions.ts'

type Access = EventOf<'read' | 'write'>

/**
 * A guarded store accepts no write of an older holder after a newer one came, and no update is overwritten unseen. In one of objects a
 * call writes once, however often its request arrives.
 */
export function guardedStore(history: History): Verdict {
  const checker = 'guarded store'
  const accesses = history.of('read', 'write').filter(({ store, accepted }) => store !== 'unguarded' && accepted)
  if (accesses.length === 0) return { checker, verdict: 'unknown', why: 'nobody wrote' }
  const twice = repeated(history)
  if (twice !== undefined) return { checker, verdict: 'false', ...twice }
  const wrong = stale(accesses) ?? lostUpdates(history, 'guarded')[0] ?? lostUpdates(history, 'objects')[0]
  if (wrong === undefined) return { checker, verdict: 'true' }
  const broken = orderBroken(history)
  const { at, why, owners } = wrong
  if (broken !== undefined && broken.at <= at)
    return { checker, verdict: 'unknown', why: `${why}; before, ${broken.why}` }
  return { checker, verdict: 'false', why, at, owners }
}

interface Wrong {
  readonly at: number
  readonly why: string
  readonly owners: readonly string[]
}

function stale(accesses: readonly Access[]): Wrong | undefined {
  const highest = new Map<string, Access>()
  for (const access of accesses) {
    const place = `${access.store} ${access.resource}`
    const before = highest.get(place)
    if (before !== undefined && before.token > access.token) {
      const why = `a ${access.kind} of ${access.resource} with token ${access.token} was accepted after ${before.token}`
      return { at: access.at, why, owners: [before.owner, access.owner] }
    }
    highest.set(place, access)
  }
  return undefined
}

/** Which call has written twice, or got the result of a write that was none of its own. Nothing excuses that: it needs neither clocks nor counters. */
function repeated(history: History): Wrong | undefined {
  const written = new Map<number, number>()
  for (const event of history.of('write', 'counted')) {
    const { at, process, owner, call, value, resource } = event
    if (call === undefined || (event.kind === 'write' && !event.accepted)) continue
    const before = written.get(call)
    if (event.kind === 'write') written.set(call, value)
    const isRight = event.kind === 'write' ? before === undefined : before === value
    if (isRight) continue
    const why =
      event.kind === 'write'
        ? `one call of ${process} wrote ${resource} twice: ${before}, and then ${value}`
        : `${process} got the result that ${resource} is ${value}, and it wrote ${before ?? 'nothing'}`
    return { at, why, owners: [owner] }
  }
  return undefined
}

/** Writes that were accepted although another one had come since their value was read. */
export function lostUpdates(history: History, store: Access['store']): Wrong[] {
  const last = new Map<string, Access>()
  const lost: Wrong[] = []
  for (const write of history.of('write')) {
    if (write.store !== store || !write.accepted) continue
    const before = last.get(write.resource)
    if (write.value !== write.base + 1) {
      const why = `${write.process} wrote ${write.value} over ${write.base} in ${write.resource}: the update of ${before?.process ?? 'nobody'} is lost`
      lost.push({ at: write.at, why, owners: [before?.owner ?? '', write.owner] })
    }
    last.set(write.resource, write)
  }
  return lost
}

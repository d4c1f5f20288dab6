import { OFFER_MS, PLACE_MS } from '../../src/engines/redis/line-lua.ts'
import type { EventOf, History, Verdict } from '../history.ts'
import { POOL } from '../plan.ts'
import { slowest } from './assumptions.ts'
import { leasesOf } from './leases.ts'

/** The least time that a silent node has; where round trips take as long, the two cannot be told apart. */
const NODE_TIME_MS = 100
/** Where nothing goes wrong, nobody waits longer for something that is free. */
const IDLE_MS = 500

/** Calls end, everyone gets what is free after the healing, and without faults nobody waits for nothing. */
export function progress(history: History): Verdict {
  const checker = 'progress'
  const wrong = hanging(history) ?? unhealed(history) ?? idle(history)
  if (wrong !== undefined) return { checker, verdict: 'false', ...wrong, owners: [] }
  return { checker, verdict: 'true' }
}

type Wrong = { readonly why: string; readonly at: number }

function returns(history: History): Map<number, EventOf<'return'>> {
  return new Map(history.of('return').map((event) => [event.call, event]))
}

function hanging(history: History): Wrong | undefined {
  const crashed = new Set(history.of('crash').map(({ process }) => process))
  const ended = returns(history)
  const endMs = history.events.at(-1)!.at
  for (const { process, call, at, waitMs } of history.of('call')) {
    if (crashed.has(process)) continue
    const pausedMs = history
      .of('pause')
      .filter((pause) => pause.process === process)
      .reduce((sum, pause) => sum + pause.untilMs - pause.at, 0)
    const dueMs = at + waitMs / slowest(history, process) + pausedMs + history.setup.lateMs
    const endedMs = ended.get(call)?.at ?? endMs
    if (endedMs > dueMs)
      return { why: `a call of ${process} that waits ${waitMs} ms took ${Math.round(endedMs - at)} ms`, at: dueMs }
  }
  return undefined
}

function unhealed(history: History): Wrong | undefined {
  const ended = returns(history)
  const last = history.of('call').filter(({ turn }) => turn !== 'any')
  if (last.length === 0) return { why: 'nobody had a last turn', at: history.events.at(-1)!.at }
  // A process that has another list of nodes may have none to spare.
  const quickMs = history.setup.unlike === '' ? history.setup.quickMs : Infinity
  for (const { process, call, at, resources, turn } of last) {
    const end = ended.get(call)
    if (end?.outcome !== 'granted') {
      return {
        why: `after the healing ${process} did not get ${resources.join(', ')}: ${end?.outcome ?? 'it hangs'}`,
        at,
      }
    }
    // The first turn may still wait for a dead process's lease, or for nodes that sit out. After that, acquiring is a
    // matter of round trips, not of the time that a silent node has.
    if (turn === 'second' && quickMs < NODE_TIME_MS && end.at - at > quickMs + deadPlaceMs(history, at)) {
      return { why: `after the healing ${process} needed ${Math.round(end.at - at)} ms for what was free`, at }
    }
  }
  return undefined
}

/**
 * A place in line that was given up by a message that was lost is as good as that of a dead process: skipped when nobody has come to
 * it for a while, and until then it may be offered the lock.
 */
function deadPlaceMs(history: History, at: number): number {
  const isLate = history
    .of('dropped')
    .some((event) => event.what === 'release' && event.at <= at && event.at > at - PLACE_MS - OFFER_MS)
  return isLate ? OFFER_MS : 0
}

/** What is not given back stays on the servers until it runs out there, or somebody adopts it. */
const STAYS = new Set(['expired', 'max-hold', 'moved'])

function idle(history: History): Wrong | undefined {
  // A caller that waits for several resources keeps those behind it in line waiting, also for what is free.
  const { faultless, permits } = history.setup
  if (!faultless || history.setup.resources.length - permits > 1) return undefined
  const ended = returns(history)
  const leases = leasesOf(history)
  const resting = new Set(history.of('rests').map(({ owner }) => owner))
  const { maxTtlMs } = history.setup
  for (const { process, call, at, waitMs, resources } of history.of('call')) {
    const endMs = ended.get(call)?.at
    // Of a pool several permits may be free.
    if (waitMs === 0 || endMs === undefined || resources[0] === POOL) continue
    // The times at which somebody had one of the resources, as far as they lie within the wait.
    const busy = leases
      .filter((lease) => lease.resources.some((resource) => resources.includes(resource)))
      // What was held for as long as it may be stays on the servers until it runs out there. Where a job of once is done, those
      // who have seen how long it would be held look again only by then, or when they do in any case.
      .map(({ beganMs, endMs, ends, owner }) => ({
        fromMs: beganMs,
        toMs: endMs + (STAYS.has(ends?.why ?? '') || resting.has(owner) ? maxTtlMs : 0),
      }))
      .sort((a, b) => a.fromMs - b.fromMs)
    let freeFromMs = at
    for (const { fromMs, toMs } of [...busy, { fromMs: endMs, toMs: endMs }]) {
      if (fromMs > endMs) break
      if (fromMs - freeFromMs > IDLE_MS) {
        const why = `${process} waited ${Math.round(fromMs - freeFromMs)} ms for ${resources.join(', ')} while it was free`
        return { why, at: fromMs }
      }
      freeFromMs = Math.max(freeFromMs, toMs)
    }
  }
  return undefined
}

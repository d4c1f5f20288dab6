import type { History, Verdict } from '../history.ts'
import { slowest } from './assumptions.ts'
import { leasesOf } from './leases.ts'

/** How long a process needs after a pause until its overdue timers have fired. */
const WAKE_MS = 5
/** A clock that is set ahead ends validity at once; the clock is looked at this often, by itself. */
const NAP_MS = 1_000

/**
 * A lease that is not given back ends with its signal, before validity does. A process that stands still at that time
 * cannot be told; it hears of it with the next timers.
 */
export function signal(history: History): Verdict {
  const checker = 'signal'
  const leases = leasesOf(history)
  const pauses = history.of('pause')
  const crashed = new Set(history.of('crash').map(({ process }) => process))
  const endMs = history.events.at(-1)!.at
  let looked = 0
  const jumps = history.of('fault').filter(({ name, ms }) => name === 'jump-process' && ms > 0)
  for (const { process, owner, beganMs, fromMs, untilMs, ends, signalMs } of leases) {
    if (crashed.has(process)) continue
    if (ends !== undefined && ends.why === 'released' && ends.atMs <= untilMs) continue
    // A release after the end of validity needs the signal before it, too.
    looked++
    // Of one that may be held for a bounded time only, hardly anything may be left when it is granted.
    let dueMs = Math.max(untilMs, fromMs + WAKE_MS)
    for (const { at, on } of jumps) {
      if (on !== process.split('.')[0] || at < beganMs || at > dueMs) continue
      // A process that stands still then looks when it goes on; one pause may follow the other.
      let seenMs = at
      for (const pause of pauses) {
        if (pause.process === process && pause.at <= seenMs + WAKE_MS) seenMs = Math.max(seenMs, pause.untilMs)
      }
      dueMs = Math.max(dueMs, seenMs + NAP_MS / slowest(history, process) + WAKE_MS)
    }
    // One pause may follow the other.
    for (const pause of pauses) {
      if (pause.process === process && pause.at <= dueMs && pause.untilMs > dueMs - WAKE_MS)
        dueMs = pause.untilMs + WAKE_MS
    }
    const toldMs = signalMs ?? endMs
    if (toldMs <= dueMs + 0.01) continue
    const why = `${process} was told ${(toldMs - untilMs).toFixed(1)} ms after validity had ended`
    return { checker, verdict: 'false', why, at: untilMs, owners: [owner] }
  }
  return looked === 0
    ? { checker, verdict: 'unknown', why: 'every lease was given back in time' }
    : { checker, verdict: 'true' }
}

/**
 * A lease has time left when its caller gets it. It may have none if the process was paused after the last answer had been
 * heard, or its locks were closed then: it was looked at before. And one that may be held for a bounded time only was asked
 * for within that time.
 */
export function timeLeft(history: History): Verdict {
  const checker = 'time left'
  const bounded = new Set(history.of('call').flatMap(({ call, isBounded }) => (isBounded ? [call] : [])))
  const closing = new Set<string>()
  const heard = new Map<string, number>()
  const stalled = new Map<string, number>()
  for (const event of history.of('heard', 'pause', 'holds', 'closing')) {
    if (event.kind === 'closing') closing.add(event.process)
    else if (event.kind === 'heard') heard.set(event.owner, event.at)
    else if (event.kind === 'pause') stalled.set(event.process, event.at)
    else if (
      event.untilMs <= event.at &&
      !bounded.has(event.call) &&
      !closing.has(event.process) &&
      !((stalled.get(event.process) ?? -1) >= (heard.get(event.owner) ?? Infinity))
    ) {
      const { process, at, owner } = event
      return { checker, verdict: 'false', why: `${process} got a lease that was over already`, at, owners: [owner] }
    }
  }
  return { checker, verdict: 'true' }
}

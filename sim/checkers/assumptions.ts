import { CLAMP_US } from '../../src/engines/redis/scripts.ts'
import type { EventOf, History } from '../history.ts'

/** A moment at which an assumption was broken on which a promise rests. */
export interface Broken {
  readonly at: number
  readonly why: string
  /** What began later than this is as safe as ever. Absent: nothing is any more. */
  readonly untilMs?: number
}

type FaultEvent = EventOf<'fault'>

interface Details {
  readonly forMs?: number
  readonly memory?: string
  readonly copyMs?: number
  readonly key?: string
  readonly rate?: number
}

function details(fault: FaultEvent): Details {
  return JSON.parse(fault.text) as Details
}

/** Does a node come back without what it had? */
function isLoss(fault: FaultEvent): boolean {
  if (fault.name === 'crash') return details(fault).memory !== 'kept'
  return fault.name === 'replace' || fault.name === 'restore'
}

/** And votes before that is over? A copy that is younger than the sitting out cannot be told from the data themselves. */
function forgets(fault: FaultEvent, history: History): boolean {
  const { engine, sitOutMs } = history.setup
  if (!isLoss(fault)) return false
  return engine === 'redis' || sitOutMs === 0 || (fault.name === 'restore' && details(fault).copyMs! < sitOutMs)
}

/**
 * Nobody can tell a new deployment from one whose nodes are all empty, if nothing remembers: no node (and every renewal and
 * every attempt leaves a trace on those that it finds empty) and not the process that looks.
 */
function looksNew(history: History): Broken | undefined {
  if (history.setup.restart !== 'auto') return undefined
  const blanks = history.of('blank', 'stamped')
  for (const [index, { kind, at }] of blanks.entries()) {
    if (kind !== 'blank') continue
    const againMs = blanks[index + 1]?.at ?? Infinity
    const fresh = history
      .of('start')
      .find(({ process, at: startMs }) => startMs <= againMs && knewMs(history, process) >= at)
    if (fresh !== undefined) {
      return {
        at,
        why: `all nodes had forgotten that they had been in use, and ${fresh.process} did not know it either`,
      }
    }
  }
  return undefined
}

/** When a process had its first vote, for or against it: since then it knows that the nodes are in use. */
function knewMs(history: History, process: string): number {
  const votes = new Set<number>()
  for (const { id, what, reply } of history.of('exec')) {
    if (what === 'acquire' && !(reply[0] instanceof Error)) votes.add(id)
  }
  return history.of('heard').find((event) => event.process === process && votes.has(event.id))?.at ?? Infinity
}

function inTurn(...broken: readonly (Broken | undefined)[]): Broken[] {
  return broken.filter((one) => one !== undefined).sort((a, b) => a.at - b.at)
}

/** What excuses something that went wrong at this time, to leases of which the first had begun then. */
export function excuse(broken: readonly Broken[], at: number, beganMs: number): Broken | undefined {
  return broken.find((one) => one.at <= at && beganMs <= (one.untilMs ?? Infinity))
}

export function exclusionBroken(history: History): Broken | undefined {
  return exclusionBreaks(history)[0]
}

/** Exclusion rests on clocks, and on servers that do not forget a lease before its time. */
export function exclusionBreaks(history: History): Broken[] {
  const { drifting, unlike } = history.setup
  if (drifting) return [{ at: 0, why: 'clocks run at speeds beyond the allowance' }]
  if (unlike !== '') return [{ at: 0, why: unlike }]
  return inTurn(...history.of('fault').map((fault) => exclusionBrokenBy(fault, history)), looksNew(history))
}

/** When the node is as it was again, but for what it has forgotten. */
function endOf(fault: FaultEvent): number {
  return fault.at + (details(fault).forMs ?? 0)
}

/** What a server has forgotten is of matter to the leases that there were then, and clocks are to all. */
function exclusionBrokenBy(fault: FaultEvent, history: History): Broken | undefined {
  const { at, name, on, ms } = fault
  const lost = (why: string): Broken => ({ at, why, untilMs: endOf(fault) })
  switch (name) {
    case 'jump':
      return ms > 0 ? { at, why: `the clock of ${on} jumped ahead by ${Math.round(ms)} ms` } : undefined
    case 'drift':
    case 'drift-process':
      return { at, why: `the clock of ${on} ran at ${details(fault).rate} of its speed` }
    case 'alter':
      return { at, why: `${on} ran other scripts` }
    case 'flushall':
      return lost(`${on} was flushed`)
    case 'evict':
    case 'spoil':
      return isCounter(fault) ? undefined : lost(`${on} lost the key ${details(fault).key}`)
    case 'failover':
      return lost(`${on} failed over to its replica`)
    case 'session':
      return lost(`${on} lost the session that its leases are bound to`)
    default:
      return forgets(fault, history) ? lost(`${on} restarted and had forgotten leases`) : undefined
  }
}

function isCounter(fault: FaultEvent): boolean {
  return details(fault).key?.startsWith('ringfence:') === true
}

export function orderBroken(history: History): Broken | undefined {
  return orderBreaks(history)[0]
}

/** Order rests on the counters, or on clocks where a counter was lost. */
export function orderBreaks(history: History): Broken[] {
  const { unlike } = history.setup
  if (unlike !== '') return [{ at: 0, why: unlike }]
  const setBack = new Set<string>()
  const lossy = new Set<string>()
  const byFault = history.of('fault').map((fault): Broken | undefined => {
    const { at, name, on, ms } = fault
    const untilMs = endOf(fault) + behindMs(history)
    if (name === 'flushall' || name === 'failover' || forgets(fault, history)) {
      return { at, why: `${on} lost its counters and numbered on at once (${name})`, untilMs }
    }
    if ((name === 'evict' || name === 'spoil') && isCounter(fault)) {
      return { at, why: `${on} lost the counter ${details(fault).key}`, untilMs }
    }
    if (name === 'jump' && ms < 0) setBack.add(on)
    if (isLoss(fault)) lossy.add(on)
    if (!setBack.has(on) || !lossy.has(on)) return undefined
    return { at, why: `${on} lost its counters and had its clock set back` }
  })
  return inTurn(...byFault, looksNew(history))
}

/**
 * For how long after a node lost its counters a number may be below one from before: what a proposal may be ahead of the clock of
 * one node, and behind that of another. Where such a clock is set or runs at another speed, for good.
 */
function behindMs(history: History): number {
  const { nodesApartMs } = history.setup
  const isOdd = history.of('fault').some(({ name }) => name === 'jump' || name === 'drift')
  return isOdd ? Infinity : (2 * CLAMP_US) / 1000 + nodesApartMs
}

/** At which part of its speed, at least, the clock of a process ran. */
export function slowest(history: History, process: string): number {
  const slowed = history.of('fault').filter(({ name, on }) => name === 'drift-process' && on === process.split('.')[0])
  const rates = slowed.map(({ text }) => (JSON.parse(text) as { rate: number }).rate)
  return Math.min(0.99, ...rates)
}

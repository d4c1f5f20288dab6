import type { EventOf, History } from '../history.ts'

/** The first moment at which an assumption was broken on which a promise rests. */
export interface Broken {
  readonly at: number
  readonly why: string
}

type FaultEvent = EventOf<'fault'>

interface Details {
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

/** And votes before that is over? A copy that is younger than the sitting out can't be told from the data themselves. */
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

function first(...broken: readonly (Broken | undefined)[]): Broken | undefined {
  return broken.filter((one) => one !== undefined).sort((a, b) => a.at - b.at)[0]
}

/** Exclusion rests on clocks, and on servers that do not forget a lease before its time. */
export function exclusionBroken(history: History): Broken | undefined {
  const { drifting, unlike } = history.setup
  if (drifting) return { at: 0, why: 'clocks run at speeds beyond the allowance' }
  if (unlike !== '') return { at: 0, why: unlike }
  return first(exclusionBrokenByFault(history), looksNew(history))
}

function exclusionBrokenByFault(history: History): Broken | undefined {
  for (const fault of history.of('fault')) {
    const { at, name, on, ms } = fault
    const why = ((): string | undefined => {
      switch (name) {
        case 'jump':
          return ms > 0 ? `the clock of ${on} jumped ahead by ${Math.round(ms)} ms` : undefined
        case 'drift':
        case 'drift-process':
          return `the clock of ${on} ran at ${details(fault).rate} of its speed`
        case 'flushall':
          return `${on} was flushed`
        case 'evict':
        case 'spoil':
          return `${on} lost the key ${details(fault).key}`
        case 'failover':
          return `${on} failed over to its replica`
        default:
          return forgets(fault, history) ? `${on} restarted and had forgotten leases` : undefined
      }
    })()
    if (why !== undefined) return { at, why }
  }
  return undefined
}

/** Order rests on the counters, or on clocks where a counter was lost. */
export function orderBroken(history: History): Broken | undefined {
  const { unlike } = history.setup
  if (unlike !== '') return { at: 0, why: unlike }
  return first(orderBrokenByFault(history), looksNew(history))
}

function orderBrokenByFault(history: History): Broken | undefined {
  const setBack = new Set<string>()
  const lossy = new Set<string>()
  for (const fault of history.of('fault')) {
    const { at, name, on, ms } = fault
    if (name === 'flushall' || name === 'failover' || forgets(fault, history)) {
      return { at, why: `${on} lost its counters and numbered on at once (${name})` }
    }
    if ((name === 'evict' || name === 'spoil') && details(fault).key?.startsWith('ringfence:') === true) {
      return { at, why: `${on} lost the counter ${details(fault).key}` }
    }
    if (name === 'jump' && ms < 0) setBack.add(on)
    if (isLoss(fault)) lossy.add(on)
    if (setBack.has(on) && lossy.has(on)) return { at, why: `${on} lost its counters and had its clock set back` }
  }
  return undefined
}

/** At which part of its speed, at least, the clock of a process ran. */
export function slowest(history: History, process: string): number {
  const slowed = history.of('fault').filter(({ name, on }) => name === 'drift-process' && on === process.split('.')[0])
  const rates = slowed.map(({ text }) => (JSON.parse(text) as { rate: number }).rate)
  return Math.min(0.99, ...rates)
}

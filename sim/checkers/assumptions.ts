import type { EventOf, History } from '../history.ts'

/** The first moment at which an assumption was broken on which a promise rests. */
export interface Broken {
  readonly at: number
  readonly why: string
}

type FaultEvent = EventOf<'fault'>

interface Details {
  readonly memory?: string
  readonly key?: string
  readonly rate?: number
}

function details(fault: FaultEvent): Details {
  return JSON.parse(fault.text) as Details
}

/** Does a node come back without what it had, and votes before that is over? */
function forgets(fault: FaultEvent, history: History): boolean {
  const { engine, sitOutMs } = history.setup
  return fault.name === 'crash' && details(fault).memory !== 'kept' && (engine === 'redis' || sitOutMs === 0)
}

/** Exclusion rests on clocks, and on servers that do not forget a lease before its time. */
export function exclusionBroken(history: History): Broken | undefined {
  if (history.setup.drifting) return { at: 0, why: 'clocks run at speeds beyond the allowance' }
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
  const setBack = new Set<string>()
  const lossy = new Set<string>()
  for (const fault of history.of('fault')) {
    const { at, name, on, ms } = fault
    if (name === 'flushall' || name === 'failover' || forgets(fault, history)) {
      return { at, why: `${on} lost its counters and numbered on at once (${name})` }
    }
    if (name === 'evict' && details(fault).key?.startsWith('ringfence:') === true) {
      return { at, why: `${on} lost the counter ${details(fault).key}` }
    }
    if (name === 'jump' && ms < 0) setBack.add(on)
    if (name === 'crash' && details(fault).memory !== 'kept') lossy.add(on)
    if (setBack.has(on) && lossy.has(on)) return { at, why: `${on} lost its counters and had its clock set back` }
  }
  return undefined
}

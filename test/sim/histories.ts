import { check } from '../../sim/checkers/all.ts'
import { History, type HistoryEvent, type Verdict } from '../../sim/history.ts'

/** A history as it might be, with what a test adds; without that, every checker is content or has nothing to say. */
export function history(...events: HistoryEvent[]): History {
  return historyOf({}, ...events)
}

export function historyOf(setup: Partial<History['setup']>, ...events: HistoryEvent[]): History {
  const made = new History()
  made.add({
    at: 0,
    kind: 'setup',
    engine: 'redlock',
    nodes: 3,
    resources: ['a'],
    ttlMs: 1000,
    maxTtlMs: 1000,
    drift: 0.01,
    sitOutMs: 7000,
    faultless: false,
    quickMs: 50,
    lateMs: 5_000,
    nodesApartMs: 0,
    drifting: false,
    leftFrozen: false,
    restart: 'auto',
    unlike: '',
    permits: 0,
    ...setup,
  })
  const last: HistoryEvent[] = [
    {
      at: 9000,
      kind: 'call',
      process: 'p9',
      call: 900,
      resources: ['a'],
      waitMs: 100,
      turn: 'first',
      isBounded: false,
    },
    { at: 9010, kind: 'return', process: 'p9', call: 900, outcome: 'granted' },
    { at: 10_000, kind: 'closed', process: 'p9', timers: 0, subscriptions: 0, pending: 0 },
  ]
  for (const event of [...events, ...last].sort((a, b) => a.at - b.at)) made.add(event)
  return made
}

export function verdictOf(checker: string, made: History): Verdict {
  return check(made).find((verdict) => verdict.checker === checker)!
}

export function lease(
  process: string,
  owner: string,
  token: number,
  from: number,
  to: number,
  began = from - 5,
): HistoryEvent[] {
  return [
    { at: began, kind: 'attempt', process, owner },
    { at: from, kind: 'holds', process, call: 1, owner, token, resources: ['a'], untilMs: to },
  ]
}

export function reader(...args: Parameters<typeof lease>): HistoryEvent[] {
  return lease(...args).map((event) => (event.kind === 'holds' ? { ...event, shared: true as const } : event))
}

export function ends(process: string, owner: string, at: number, why = 'released'): HistoryEvent {
  return { at, kind: 'ends', process, owner, token: 0, why }
}

export function fault(at: number, name: string, details: object = {}, ms = 0): HistoryEvent {
  return { at, kind: 'fault', name, on: 'n1', text: JSON.stringify(details), ms }
}

export function access(kind: 'read' | 'write', at: number, token: number, base: number, value: number): HistoryEvent {
  return {
    at,
    kind,
    process: `p${token}`,
    owner: `o${token}`,
    token,
    store: 'guarded',
    resource: 'a',
    base,
    value,
    accepted: true,
  }
}

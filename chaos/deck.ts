import { canCut, canSlow } from '../harness/faults/network.ts'
import { isAvailable } from '../harness/binaries.ts'
import type { Arena } from './arena.ts'

export type FaultKind =
  | 'server frozen'
  | 'server killed'
  | 'server emptied'
  | 'server replaced by an empty one'
  | 'old copy of a server put back'
  | 'all servers emptied in turn'
  | 'server cut off'
  | 'server cut off from half of the clients'
  | 'answers lost'
  | 'requests and answers delayed'
  | 'server cut off from all'
  | 'all that is sent to a server lost'
  | 'all that a server sends lost'
  | 'two servers cut off from each other'
  | 'one server does not hear another'
  | 'packets lost'
  | 'packets delayed'
  | 'clock ahead'
  | 'clock back'
  | 'clock of a client ahead'
  | 'clock of a client back'
  | 'majority frozen'
  | 'client stopped'
  | 'client killed'

/** One that has begun. */
export interface Fault {
  /** For the reader. */
  readonly what: string
  readonly forMs: number
  readonly end: () => Promise<void>
}

/** Of each of the two kinds; clients are lost more often than servers. */
const CLIENT_CARDS = 3
/** After a failover that loses counters, clients whose clocks are apart may get tokens in another order (docs/guarantees.md). */
export function canMoveClients({ exclusion }: Arena): boolean {
  return exclusion === undefined && isAvailable('clock-shift')
}

/** What the nemesis can do in an arena, each as often as it does it. */
export function cardsOf(arena: Arena): FaultKind[] {
  const { targets } = arena
  const cards: FaultKind[] = []
  for (let i = 0; i < CLIENT_CARDS; i++) cards.push('client stopped', 'client killed')
  if (canMoveClients(arena)) cards.push('clock of a client ahead', 'clock of a client back')
  if (targets.length > 0) cards.push('server frozen')
  if (targets.some(({ ways }) => ways.length > 0)) {
    cards.push('server cut off', 'server cut off from half of the clients', 'answers lost')
    cards.push('requests and answers delayed')
  }
  if (targets.length > 0 && canCut()) {
    cards.push('server cut off from all', 'all that is sent to a server lost', 'all that a server sends lost')
    cards.push('packets lost')
    if (arena.isGroup === true) cards.push('two servers cut off from each other', 'one server does not hear another')
  }
  if (targets.length > 0 && canSlow()) cards.push('packets delayed')
  if (targets.length > 1) cards.push('majority frozen')
  if (targets.length > 1 && targets.every(({ memory }) => memory === 'lost')) cards.push('all servers emptied in turn')
  if (targets.some(({ replace }) => replace !== undefined)) cards.push('server replaced by an empty one')
  if (targets.some(({ copy }) => copy !== undefined)) cards.push('old copy of a server put back')
  if (targets.some(({ memory }) => memory === 'kept')) cards.push('server killed')
  if (targets.some(({ memory }) => memory === 'lost')) cards.push('server emptied')
  if (targets.some(({ clock }) => clock !== undefined)) cards.push('clock ahead', 'clock back')
  return cards
}

export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}

import { KINDS, type Action, type Kind } from './actions.ts'
import type { Prepared } from './scenes.ts'
import { named } from './tell.ts'

/** What can be done to a client, to a node, to the line between them. */
export const ACTIONS: Readonly<Record<Kind, string>> = {
  pause: 'pause it',
  stall: 'pause before its next write',
  crash: 'crash it',
  'jump-process': 'clock 2 s ahead',
  cut: 'cut the line',
  delay: 'slow it by 150 ms',
  'lose-reply': 'lose replies',
  freeze: 'freeze it',
  kill: 'kill it',
  restart: 'restart with memory',
  forget: 'restart without memory',
  jump: 'clock 2 s ahead',
  evict: 'evict the lock key',
  failover: 'fail over to its replica',
}

export function wordsOf({ kind, process, node, forMs }: Action): string {
  const { on } = KINDS[kind]
  const where = on === 'p' ? `p${process}` : on === 'n' ? `n${node}` : `p${process} to n${node}`
  const time = forMs === 0 ? '' : forMs > 10_000 ? ', for good' : `, ${forMs / 1000}\u00a0s`
  return `${named(where)}: ${ACTIONS[kind]}${time}`
}

export const REMEDIES: Readonly<Record<Prepared['off'][number], readonly [name: string, about: string]>> = {
  protocol: ['The shipped lock', 'off: a lock written by hand, SET NX PX and a fixed pause'],
  'check-and-delete': ['Check and delete', 'off: the key is deleted, also if it is another owner’s'],
  quorum: ['Quorum', 'off: the first node alone decides'],
  'sit-out': ['Sit-out', 'off: a node that forgot votes at once'],
  renewal: ['Renewal', 'off: a lease is never extended'],
  tokens: ['Tokens', 'off: writes say nothing of who is newer'],
  guard: ['Guard', 'off: the store takes every write'],
  remedy: ['The remedy', 'off: as it goes wrong'],
}

export const PROMISES: Readonly<Record<string, string>> = {
  exclusion: 'One holder at a time',
  tokens: 'Later tokens are greater',
  signal: 'The work is told in time',
  'guarded store': 'The guarded store loses nothing',
  'plain store': 'The store without a guard loses nothing',
  waiting: 'Nobody waits long for what is free',
  asking: 'The nodes are not asked again and again',
}

export const GROUPS: Readonly<Record<Prepared['group'], string>> = {
  failure: 'Ten failures',
  open: 'Break it yourself',
  catalogue: 'The catalogue',
}

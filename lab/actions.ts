import type { Fault } from '../sim/nemesis.ts'
import { Seeded } from '../sim/random.ts'

/** What a reader can do, and to what: a client (`p`), a node (`n`), or the line between them (`pn`); `forMs` if it ends by itself. */
export const KINDS = {
  pause: { on: 'p', forMs: 1500 },
  stall: { on: 'p', forMs: 1500 },
  crash: { on: 'p' },
  'jump-process': { on: 'p' },
  cut: { on: 'pn', forMs: 1500 },
  delay: { on: 'pn', forMs: 1500 },
  'lose-reply': { on: 'pn', forMs: 500 },
  freeze: { on: 'n', forMs: 1500 },
  kill: { on: 'n' },
  restart: { on: 'n' },
  forget: { on: 'n' },
  jump: { on: 'n' },
  evict: { on: 'n' },
  failover: { on: 'n' },
} as const satisfies Record<string, { on: 'p' | 'n' | 'pn'; forMs?: number }>

export type Kind = keyof typeof KINDS

export interface Action {
  readonly kind: Kind
  readonly process: number
  readonly node: number
  readonly atMs: number
  /** 0: it does not end by itself. */
  readonly forMs: number
}

export function usualMs(kind: Kind): number {
  const how = KINDS[kind]
  return 'forMs' in how ? how.forMs : 0
}

export function action(kind: Kind, atMs: number, where: { process?: number; node?: number; forMs?: number }): Action {
  const { process = 0, node = 0, forMs = usualMs(kind) } = where
  const { on } = KINDS[kind]
  return { kind, atMs, process: on.startsWith('p') ? process : 0, node: on.endsWith('n') ? node : 0, forMs }
}

/** How long a node that comes back has been away, if it was not killed before. */
const AWAY_MS = 100
const NEVER_MS = 1e9
const JUMP_MS = 2000
const SLOW_MS = 150

/** The same as faults of the simulator. */
export function faultsOf(actions: readonly Action[]): readonly Fault[] {
  const faults: Fault[] = []
  const inOrder = [...actions].sort((a, b) => a.atMs - b.atMs)
  const down = new Map<number, number>()
  for (const { kind, node, atMs, ...rest } of inOrder) {
    const killedMs = down.get(node)
    if (kind === 'kill') down.set(node, killedMs ?? atMs)
    else if (kind !== 'restart' && kind !== 'forget') faults.push(faultOf({ kind, node, atMs, ...rest }))
    else {
      down.delete(node)
      const memory = kind === 'restart' ? 'kept' : 'none'
      faults.push({
        kind: 'crash',
        node,
        memory,
        atMs: killedMs ?? atMs,
        forMs: killedMs === undefined ? AWAY_MS : atMs - killedMs,
      })
    }
  }
  for (const [node, atMs] of down) faults.push({ kind: 'crash', node, memory: 'none', atMs, forMs: NEVER_MS })
  return faults.sort((a, b) => a.atMs - b.atMs)
}

function faultOf({
  kind,
  process,
  node,
  atMs,
  forMs,
}: Action & { kind: Exclude<Kind, 'kill' | 'restart' | 'forget'> }): Fault {
  switch (kind) {
    case 'pause':
      return { kind, atMs, process, ms: forMs, steps: 0 }
    case 'stall':
      return { kind: 'pause', atMs, process, ms: forMs, steps: 'write' }
    case 'crash':
      return { kind: 'crash-process', atMs, process, backMs: NEVER_MS }
    case 'jump-process':
      return { kind, atMs, process, ms: JUMP_MS }
    case 'cut':
      return { kind, atMs, process, node, way: 'both', reset: false, forMs }
    case 'delay':
      return { kind, atMs, process, node, ms: SLOW_MS, forMs }
    case 'lose-reply':
      return { kind, atMs, process, node, chance: 1, forMs }
    case 'freeze':
      return { kind, atMs, node, forMs }
    case 'jump':
      return { kind, atMs, node, ms: JUMP_MS }
    case 'evict':
      return { kind, atMs, node, key: 'a' }
    case 'failover':
      return { kind, atMs, node }
  }
}

/** Some faults, drawn from a seed: the same ones for the same seed. */
export function drawActions(seed: number, clients: number, nodes: number, endMs: number): Action[] {
  const random = new Seeded(`faults of ${seed}`)
  const kinds = Object.keys(KINDS) as Kind[]
  return Array.from({ length: random.int(3, 6) }, () =>
    action(random.pick(kinds), Math.round(random.between(0.05, 0.8) * endMs), {
      process: random.int(0, clients - 1),
      node: random.int(0, nodes - 1),
    }),
  ).sort((a, b) => a.atMs - b.atMs)
}

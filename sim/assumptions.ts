import { resourceKeys } from '../src/engines/redis/keys.ts'
import { cut } from './draw-faults.ts'
import type { Fault } from './nemesis.ts'
import { drawUsual, type Plan } from './plan.ts'
import { Seeded } from './random.ts'
import { run } from './run.ts'

/** The promises of docs/guarantees.md that rest on assumptions, and the checkers that look after them. */
const PROMISES = { exclusion: ['exclusion'], order: ['tokens', 'guarded store'] } as const
type Promised = keyof typeof PROMISES

/** Something that docs/guarantees.md says breaks a promise. */
export interface Assumption {
  readonly name: string
  /** The words of the page that say so. */
  readonly said: string
  /** What breaks, each with a seed in which it does. Everything else must hold. */
  readonly breaks: Partial<Record<Promised, number>>
  readonly engine: Plan['engine']
  /** How the plan differs, and what happens at that time to the node on which both halves of the clients rest. */
  plan(plan: Plan, random: Seeded): Plan
  /** One of the processes reaches all nodes: else none is let in that claims to forget nothing. */
  readonly asksAll?: boolean
  faults?(node: number, atMs: number, random: Seeded): Fault[]
}

const same = (plan: Plan): Plan => plan

/** A key of the resource is gone on a node, again and again. */
function evicted(which: 'lock' | 'fence'): NonNullable<Assumption['faults']> {
  const key = resourceKeys('', 'a')[which]
  return (node, atMs) => [0, 1, 2, 3].map((time) => ({ kind: 'evict', node, key, atMs: (atMs * (time + 1)) / 4 }))
}

export const ASSUMPTIONS: readonly Assumption[] = [
  {
    name: 'FLUSHALL',
    said: '**FLUSHALL and eviction**',
    breaks: { exclusion: 3, order: 32 },
    engine: 'redlock',
    plan: same,
    faults: (node, atMs) => [{ kind: 'flushall', node, atMs }],
  },
  {
    name: 'eviction of a lock',
    said: 'eviction or deletion of lock keys',
    breaks: { exclusion: 1 },
    engine: 'redlock',
    plan: same,
    faults: evicted('lock'),
  },
  {
    name: 'eviction of a counter',
    said: 'If a node loses its counters (restart without persistence, FLUSHALL, eviction',
    breaks: { order: 23 },
    engine: 'redlock',
    plan: same,
    faults: evicted('fence'),
  },
  {
    name: 'the clock of a node jumps ahead',
    said: 'or jumps ahead. On a quorum one such node is enough',
    breaks: { exclusion: 3 },
    engine: 'redlock',
    plan: same,
    faults: (node, atMs, random) => [{ kind: 'jump', node, ms: random.between(1000, 4000), atMs }],
  },
  {
    name: 'the clock of a node runs too fast',
    said: "a server's clock that runs faster than ours by more than the allowance",
    breaks: { exclusion: 1 },
    engine: 'redlock',
    plan: same,
    faults: (node, atMs, random) => [{ kind: 'drift', node, rate: random.between(1.5, 3), atMs: atMs / 4 }],
  },
  {
    name: 'the clock of a process runs too slow',
    said: 'Clocks differ in speed by less than the allowance',
    breaks: { exclusion: 2 },
    engine: 'redlock',
    plan: (plan) => ({ ...plan, processes: plan.processes.map((process) => ({ ...process, lingers: true })) }),
    faults: (_node, atMs) => [
      { kind: 'drift-process', process: 0, rate: 0.5, atMs: atMs / 4 },
      ...[0, 1, 2].map((node) => ({ kind: 'lose-request', process: 0, node, chance: 1, atMs, forMs: 3000 }) as const),
    ],
  },
  {
    name: 'all nodes are empty at once',
    said: '**All nodes empty at once.**',
    breaks: { exclusion: 2, order: 11 },
    engine: 'redlock',
    asksAll: true,
    plan: same,
    faults: (_node, atMs) => [
      ...[0, 1, 2].map((node) => ({ kind: 'crash', node, memory: 'none', atMs, forMs: 20 }) as const),
      { kind: 'crash-process', process: 2, atMs: atMs - 20, backMs: 45 },
    ],
  },
  {
    name: 'a failover to a replica that did not have the lease',
    said: 'a failover to a replica that did not have the lease',
    breaks: { exclusion: 2, order: 4 },
    engine: 'redis',
    plan: (plan) => ({ ...plan, nodes: plan.nodes.map((node) => ({ ...node, replicaLagMs: 5 })) }),
    faults: (node, atMs) => [
      { kind: 'cut-replica', node, atMs: atMs - 600, forMs: 700 },
      { kind: 'failover', node, atMs },
    ],
  },
  {
    name: 'a lone server that restarts without persistence',
    said: 'after a restart without persistence that server grants again at',
    breaks: { exclusion: 1, order: 4 },
    engine: 'redis',
    plan: same,
    faults: (node, atMs, random) => [{ kind: 'crash', node, memory: 'none', atMs, forMs: random.between(2, 50) }],
  },
  {
    name: 'a quorum that is told to trust nodes that restarted',
    said: "or a restart that is trusted** (one server, or `restart: 'trust'`)",
    breaks: { exclusion: 1, order: 10 },
    engine: 'redlock',
    plan: (plan) => ({ ...plan, restart: 'trust' }),
    faults: (node, atMs, random) => [{ kind: 'crash', node, memory: 'none', atMs, forMs: random.between(2, 50) }],
  },
  {
    name: 'a copy that is younger than the time of sitting out',
    said: '**A copy that is younger than the time of sitting out**',
    breaks: { exclusion: 12, order: 18 },
    engine: 'redlock',
    asksAll: true,
    plan: (plan) => ({ ...plan, nodes: plan.nodes.map((node) => ({ ...node, persistence: 'always' })) }),
    faults: (node, atMs, random) => [
      { kind: 'restore', node, copyMs: random.between(500, 4000), atMs, forMs: random.between(2, 50) },
    ],
  },
  {
    name: 'a node that runs other scripts',
    said: 'Scripts run unmodified',
    breaks: { exclusion: 2 },
    engine: 'redlock',
    plan: same,
    faults: (node, atMs) => [{ kind: 'alter', node, atMs: atMs / 4, forMs: 4000 }],
  },
  {
    name: 'clients with another list of nodes',
    said: 'Nothing notices another list of nodes: a majority of three nodes and a majority',
    breaks: { exclusion: 3, order: 3 },
    engine: 'redlock',
    plan: (plan) => ({
      ...plan,
      nodes: [0, 1, 2, 3, 4].map((at) => plan.nodes[at % plan.nodes.length]!),
      processes: plan.processes.map((process, index) => (index % 2 === 0 ? process : { ...process, nodes: [0, 1, 2] })),
    }),
  },
]

/**
 * One resource that all want, clients whose clocks are seconds apart, and one node on which both halves of them rest: what
 * happens to that node decides. Nothing else goes wrong.
 */
function planFor(assumption: Assumption, seed: number): Plan {
  const { engine, asksAll = false } = assumption
  const usual = drawUsual(seed)
  const random = new Seeded(`assumption ${seed}`)
  const [ours, common, theirs] =
    engine === 'redis' ? [0, 0, 0] : (random.shuffle([0, 1, 2]) as [number, number, number])
  const ttlMs = 1500
  const base: Plan = {
    ...usual,
    seed: String(seed),
    engine,
    nodes: Array.from({ length: engine === 'redis' ? 1 : 3 }, () => ({
      rate: 1,
      aheadMs: random.between(-2, 2),
      persistence: 'none',
    })),
    processes: [0, 1, 2].map((index) => ({
      rate: 1,
      // Those who can reach one of the outer nodes are behind those who can reach the other.
      aheadMs: (index % 2 === 0 ? 1 : -1) * random.between(500, 1500),
      driver: 'reject',
      observes: false,
      tasks: 2,
    })),
    resources: ['a'],
    ttlMs,
    maxTtlMs: ttlMs,
    restart: engine === 'redis' ? 'trust' : 'auto',
    replicas: 0,
    latency: { baseMs: 0.5, jitterMs: 0.5 },
    busyMs: 5000,
    leaveFrozen: undefined,
    faults: [],
  }
  const changed = assumption.plan(base, random)
  const cuts =
    engine === 'redis' || changed.nodes.length > 3
      ? []
      : (asksAll ? [0, 1] : [0, 1, 2]).map((process) =>
          cut(random, { process, node: process % 2 === 0 ? ours : theirs }, 300, changed.busyMs),
        )
  const more = assumption.faults?.(common, random.between(1500, 4000), random) ?? []
  return { ...changed, faults: [...cuts, ...more].sort((a, b) => a.atMs - b.atMs) }
}

export interface Verified {
  /** The promises of which it was seen that they broke. */
  readonly broken: readonly Promised[]
  /** What nothing excuses. */
  readonly wrong: readonly string[]
}

export async function verify(assumption: Assumption, seed: number): Promise<Verified> {
  const { verdicts } = await run(planFor(assumption, seed))
  const isBroken = (checkers: readonly string[]): boolean =>
    verdicts.some(
      (one) => checkers.includes(one.checker) && one.verdict === 'unknown' && one.why.includes('; before, '),
    )
  return {
    broken: (Object.keys(PROMISES) as Promised[]).filter((promise) => isBroken(PROMISES[promise])),
    wrong: verdicts.flatMap((one) => (one.verdict === 'false' ? [`${one.checker}: ${one.why}`] : [])),
  }
}

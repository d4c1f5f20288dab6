import type { Driver } from './client.ts'
import { drawFaults, drawForgetting } from './draw-faults.ts'
import type { Fault } from './nemesis.ts'
import { Seeded } from './random.ts'

/** A whole run as data: what there is, and what goes wrong when. The same plan gives the same history. */
export interface Plan {
  readonly seed: string
  readonly engine: 'redis' | 'redlock'
  readonly nodes: readonly NodePlan[]
  readonly processes: readonly ProcessPlan[]
  readonly resources: readonly string[]
  readonly ttlMs: number
  readonly maxTtlMs: number
  readonly restart: 'auto' | 'strict' | 'trust'
  /** Writes need so many replicas; only with one node. */
  readonly replicas: number
  readonly latency: { readonly baseMs: number; readonly jitterMs: number }
  /** How long the workload runs while things go wrong; after that everything heals. */
  readonly busyMs: number
  /** A node that stays frozen in the last part, when all else is well: a minority must not matter. */
  readonly leaveFrozen: number | undefined
  readonly faults: readonly Fault[]
}

export interface NodePlan {
  readonly rate: number
  readonly aheadMs: number
  readonly persistence: 'none' | 'everysec' | 'always'
  readonly replicaLagMs?: number
}

export interface ProcessPlan {
  readonly rate: number
  readonly aheadMs: number
  readonly driver: Driver
  /** Whether the engine's round trips are observed, too: most users don't, and then nobody follows them. */
  readonly observes: boolean
  /** How many callers there are in it. */
  readonly tasks: number
}

/**
 * Two speeds that differ by less than the allowance of a hundredth: the fastest and the slowest clock of a run within its
 * assumptions.
 */
const SPEEDS = { slowest: 0.9955, fastest: 1.0045 }

const PERSISTENCE = ['none', 'everysec', 'always', 'mixed'] as const

export function drawPlan(seed: number | string): Plan {
  const random = new Seeded(`plan ${seed}`)
  const engine = random.chance(0.15) ? 'redis' : 'redlock'
  const hasReplica = engine === 'redis' && random.chance(0.5)
  // Some runs are about nodes that forget: leases on bare majorities, clients whose clocks are far apart, and time enough
  // for a node to vote again while what it has forgotten still matters.
  const isForgetful = engine === 'redlock' && random.chance(0.1)
  const size = engine === 'redis' ? 1 : isForgetful ? 3 : random.pick([3, 3, 3, 5, 5, 4])
  // Wall clocks of clients may be anywhere: nothing rests on them while the counters are there.
  const apartMs = isForgetful ? 100_000 : random.pick([5, 5, 50, 1500, 100_000])
  const nodesApartMs = random.pick([1, 20, 200])
  const persistence = random.pick(isForgetful ? (['none', 'everysec'] as const) : PERSISTENCE)
  const maxTtlMs = isForgetful ? (persistence === 'none' ? 1000 : 4000) : random.pick([1000, 2000, 4000])
  const ttlMs = Math.round(random.between(0.2, 1) * maxTtlMs)
  // The ends of the range more often than what lies between: drift shows where nodes are fast and a process is slow.
  const speed = (): number =>
    random.pick([SPEEDS.slowest, SPEEDS.fastest, random.between(SPEEDS.slowest, SPEEDS.fastest)])
  const areNodesFast = random.chance(0.3)
  const plan: Plan = {
    seed: String(seed),
    engine,
    nodes: Array.from({ length: size }, () => ({
      rate: areNodesFast ? SPEEDS.fastest : speed(),
      aheadMs: random.between(-nodesApartMs, nodesApartMs),
      persistence: persistence === 'mixed' ? random.pick(['none', 'everysec', 'always']) : persistence,
      ...(hasReplica ? { replicaLagMs: random.between(0.5, 10) } : {}),
    })),
    processes: Array.from({ length: random.int(2, 4) }, (_, index) => ({
      rate: speed(),
      aheadMs: random.between(-apartMs, apartMs),
      driver: random.pick(['resend', 'reject']),
      observes: random.fork(`observes ${index}`).chance(0.5),
      tasks: random.pick([1, 1, 2, 3]),
    })),
    resources: isForgetful ? ['a'] : random.pick([['a'], ['a'], ['a', 'b']]),
    ttlMs,
    maxTtlMs,
    restart: engine === 'redis' ? 'trust' : 'auto',
    replicas: hasReplica && random.chance(0.5) ? 1 : 0,
    latency: { baseMs: random.pick([0.2, 1, 5]), jitterMs: random.pick([0.1, 1, 5]) },
    busyMs: (isForgetful ? 4000 : random.between(0.7, 2) * 1000) + ttlMs,
    leaveFrozen: engine === 'redlock' && random.chance(0.3) ? random.int(0, size - 1) : undefined,
    faults: [],
  }
  const draw = isForgetful ? drawForgetting : drawFaults
  return { ...plan, faults: draw(plan, random.fork('faults')) }
}

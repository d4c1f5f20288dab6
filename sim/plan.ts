import type { Driver } from './client.ts'
import { drawFaults, drawForgetting, drawStoreFaults } from './draw-faults.ts'
import { drawExpiries, drawLosses, drawMore, type Expiry, type Loss } from './draw-losses.ts'
import type { Fault } from './nemesis.ts'
import { Seeded } from './random.ts'

/** GLIDE has its sockets in native code, where nothing can be put in their place. */
export const REAL_DRIVERS = ['ioredis', 'iovalkey', 'node-redis'] as const
export type RealDriver = (typeof REAL_DRIVERS)[number]

/** A whole run as data: what there is, and what goes wrong when. The same plan gives the same history. */
export interface Plan {
  readonly seed: string
  /** A real driver, over simulated sockets. Default the simulated one. */
  readonly over?: RealDriver | undefined
  readonly engine: 'redis' | 'redlock'
  readonly nodes: readonly NodePlan[]
  readonly processes: readonly ProcessPlan[]
  readonly resources: readonly string[]
  readonly ttlMs: number
  readonly maxTtlMs: number
  readonly restart: 'auto' | 'strict' | 'trust'
  /** Writes need this many replicas; only with one node. */
  readonly replicas: number
  readonly latency: { readonly baseMs: number; readonly jitterMs: number }
  /** How long the workload runs while things go wrong; after that everything heals. */
  readonly busyMs: number
  /** A node that stays frozen in the last part, when all else is well: a minority must not matter. */
  readonly leaveFrozen: number | undefined
  readonly faults: readonly Fault[]
  /** Which part of the calls is for a shared lease. Default none. */
  readonly readers?: number
  /** Which kinds of locks the calls are for, besides exclusive and shared leases. Default none. */
  readonly kinds?: KindsPlan
  /** Holders also count in an object storage. Default not. */
  readonly objects?: ObjectsPlan
  /** Callers also look (`inspect`, `check`, `probe`), write notes, and have runs of `once` recorded. Default not. */
  readonly looks?: boolean
}

export interface ObjectsPlan {
  /** Where the guard keeps its fence; in the body, the storage makes its ETags of that alone. */
  readonly fenceIn: 'header' | 'body'
  /** Which part of the answers gets lost on its way, so that the transport sends the request again. */
  readonly lostAnswers: number
}

export interface KindsPlan {
  /** Which part of the calls is for one of them. */
  readonly part: number
  /** How many permits the semaphore has; 0 if there is none. */
  readonly permits: number
  /** Leases are handed off, and adopted by any process that gets hold of their tickets. */
  readonly moves: boolean
  /** Leases are adopted, or ended by a person, while their holders go on. */
  readonly meddles: boolean
  /** Calls inside of `using` join its lease. */
  readonly nests: boolean
  /** Effects that are to happen once, recorded by the shipped guard on a Redis server of its own. */
  readonly effects: boolean
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
  /** Whether the engine's round trips are observed, too: most users do not, and then nobody follows them. */
  readonly observes: boolean
  /** How many callers there are in it. */
  readonly tasks: number
  /** Whether they call `using`, `once` and `elect`, too, hold for a bounded time, and extend to other times. */
  readonly callsAll?: boolean
  /** If its client is a pool: how many connections it has. */
  readonly pool?: number
  /** Whether they work for longer than their leases are. */
  readonly lingers?: boolean
  /** If it has another list of nodes than the others. */
  readonly nodes?: readonly number[]
  /** If it has another longest ttl than the others. */
  readonly maxTtlMs?: number
  /** If it knows of fewer permits than there are. */
  readonly permits?: number
  /** It runs the library as it was at the commit that `older.ts` names. */
  readonly isOlder?: boolean
}

/**
 * Two speeds that differ by less than the allowance of a hundredth: the fastest and the slowest clock of a run within its
 * assumptions.
 */
const SPEEDS = { slowest: 0.9955, fastest: 1.0045 }

const PERSISTENCE = ['none', 'everysec', 'always', 'mixed'] as const

/** The same run with the other kinds of locks in it. */
export function drawKinds(seed: number | string): Plan {
  const plan = drawLeases(seed)
  const random = new Seeded(`kinds of ${seed}`)
  const kinds: KindsPlan = {
    part: random.pick([0.3, 0.6, 0.9]),
    permits: random.chance(0.6) ? random.int(1, 3) : 0,
    moves: random.chance(0.6),
    nests: random.chance(0.5),
    effects: random.chance(0.5),
    // Named so that the seeds that are kept, and those that the gate's page names, stay what they were.
    meddles: random.fork('meddles 18').chance(0.4),
  }
  const others = random.fork('permits')
  const processes = plan.processes.map((process) =>
    kinds.permits > 1 && others.chance(0.2) ? { ...process, permits: kinds.permits - 1 } : process,
  )
  const isCalm = plan.faults.length === 0 || !kinds.effects
  const more = isCalm ? [] : drawStoreFaults(plan, random.fork('store'))
  return { ...plan, kinds, processes, faults: [...plan.faults, ...more].sort((a, b) => a.atMs - b.atMs) }
}

/** Every name that there may be a lock of. */
export function namesOf({ resources, kinds }: Pick<Plan, 'resources' | 'kinds'>): readonly string[] {
  return [...resources, ...Array.from({ length: kinds?.permits ?? 0 }, (_, permit) => `${POOL}#${permit}`)]
}

export const POOL = 'pool'

/** Exclusive and shared leases only. */
export function drawLeases(seed: number | string): Plan {
  const random = new Seeded(`plan ${seed}`)
  const readers = random.fork('readers')
  const plan = drawExclusive(seed, random)
  // What nodes forget shows by those who want the same at once: readers do not.
  return readers.chance(plan.faults.some(isLoss) ? 0.1 : 0.5)
    ? { ...plan, readers: readers.pick([0.3, 0.6, 0.9]) }
    : plan
}

/** A node comes back without what it had. */
function isLoss(fault: Fault): boolean {
  return fault.kind === 'replace' || fault.kind === 'restore' || (fault.kind === 'crash' && fault.memory !== 'kept')
}

function drawExclusive(seed: number | string, random: Seeded): Plan {
  const usual = drawUsual(seed)
  const kind = random.fork('kind').fraction()
  if (usual.engine === 'redlock' && kind < 0.12) return lossy(usual, random.fork('lossy'))
  if (kind > 0.93) return expiring(usual, random.fork('expiring'))
  const varied = { ...usual, processes: variedProcesses(usual, random.fork('varied')) }
  // What has no faults is to have none.
  const more = usual.faults.length === 0 ? [] : drawMore(varied, random.fork('more'))
  return { ...varied, faults: [...usual.faults, ...more].sort((a, b) => a.atMs - b.atMs) }
}

/** Callers that only acquire, and faults that nodes and processes have by themselves. */
export function drawUsual(seed: number | string): Plan {
  const random = new Seeded(`plan ${seed}`)
  const engine = random.chance(0.15) ? 'redis' : 'redlock'
  const hasReplica = engine === 'redis' && random.chance(0.5)
  // Some runs are about nodes that forget: leases on bare majorities, clients whose clocks are far apart, and time enough
  // for a node to vote again while what it has forgotten still matters.
  const isForgetful = engine === 'redlock' && random.chance(0.16)
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
    busyMs: (isForgetful ? 5500 : random.between(0.7, 2) * 1000) + ttlMs,
    leaveFrozen: engine === 'redlock' && random.chance(0.3) ? random.int(0, size - 1) : undefined,
    faults: [],
  }
  const draw = isForgetful ? drawForgetting : drawFaults
  return { ...plan, faults: draw(plan, random.fork('faults')) }
}

/** Most processes call all there is. Now and then they differ in what must be alike, which breaks what rests on it. */
function variedProcesses({ engine, nodes, maxTtlMs, processes }: Plan, random: Seeded): readonly ProcessPlan[] {
  const others = engine === 'redlock' && random.chance(0.02)
  return processes.map((single, index) => {
    const callsAll = random.chance(0.6)
    const pool = random.fork(`pool ${index}`)
    const process = pool.chance(0.2) ? { ...single, pool: pool.int(2, 4) } : single
    if (!others || index > 0) return { ...process, callsAll }
    const all = [...nodes.keys()]
    return random.chance(0.5) && nodes.length > 3
      ? { ...process, callsAll, nodes: random.shuffle(all).slice(0, 3) }
      : { ...process, callsAll, maxTtlMs: Math.max(1000, maxTtlMs / 4) }
  })
}

/**
 * A run about nodes that are emptied, replaced, or restored from a copy. They are watched for longer than a node sits out,
 * where a copy is to be older than that.
 */
function lossy(plan: Plan, random: Seeded): Plan {
  const what = random.pick(['rolling', 'rolling', 'most', 'spare', 'copy'] as const satisfies Loss[])
  const persistence =
    what === 'copy' ? 'always' : what === 'rolling' ? random.pick(['none', 'everysec'] as const) : 'none'
  // Renewals that are far apart leave time to get a lease of which the holder has not heard that it is lost.
  const ttlMs = what === 'rolling' ? 4000 : plan.ttlMs
  const changed: Plan = {
    ...plan,
    ttlMs,
    maxTtlMs: Math.max(plan.maxTtlMs, ttlMs),
    nodes: Array.from({ length: 3 }, (_, at) => ({ ...plan.nodes[at]!, persistence })),
    processes: plan.processes.map((process) => ({ ...process, callsAll: random.chance(0.5) })),
    resources: ['a'],
    restart: random.chance(0.15) ? 'strict' : 'auto',
    busyMs: (what === 'copy' ? 8000 : 2500) + ttlMs,
    // Without a quorum, those who wait must not keep each other awake: that shows where messages are quick.
    ...(what === 'most' ? { latency: { baseMs: 0.2, jitterMs: 0.1 } } : {}),
    leaveFrozen: undefined,
    faults: [],
  }
  return { ...changed, faults: drawLosses(changed, what, random.fork('faults')) }
}

/**
 * A run about leases that run out: held for long and wanted by all. Where the holder is far away, they are short; where it is
 * stopped, its clock is the slowest and those of the nodes are the fastest.
 */
function expiring(plan: Plan, random: Seeded): Plan {
  const how = random.pick(['far', 'stopped', 'torn'] as const satisfies Expiry[])
  const isStopped = how === 'stopped'
  const ttlMs = Math.round(isStopped ? random.between(500, 1000) : random.between(200, 500))
  const holder = { tasks: 3, lingers: true, ...(isStopped ? { rate: SPEEDS.slowest } : { driver: 'reject' as const }) }
  const changed: Plan = {
    ...plan,
    ttlMs,
    nodes: isStopped ? plan.nodes.map((node) => ({ ...node, rate: SPEEDS.fastest })) : plan.nodes,
    processes: plan.processes.map((process, index) => ({ ...process, ...(index === 0 ? holder : { tasks: 2 }) })),
    resources: ['a'],
    latency: { baseMs: 0.2, jitterMs: 0.1 },
    busyMs: 4000,
    leaveFrozen: undefined,
  }
  return { ...changed, faults: drawExpiries(changed, how, random.fork('faults')) }
}

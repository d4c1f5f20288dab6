import type { Fault } from '../sim/nemesis.ts'
import type { KindsPlan } from '../sim/plan.ts'
import { Seeded } from '../sim/random.ts'

/** A schedule as data: who there is, how requests travel, and what goes wrong with their clients. */
export interface Plan {
  readonly seed: string
  readonly processes: readonly ClientPlan[]
  readonly serverRate: number
  readonly resources: readonly string[]
  /** Which part of the calls is for a shared lease. */
  readonly readers: number
  readonly ttlMs: number
  readonly maxTtlMs: number
  readonly latency: { readonly baseMs: number; readonly jitterMs: number }
  /** How long the clients work while things go wrong; after that every request travels promptly. */
  readonly busyMs: number
  /** How probable each fate of a request is that is not prompt. */
  readonly fates: Readonly<Record<FateName, number>>
  /** Requests that arrive within this time reach the server side by side; 0 for one after the other. */
  readonly togetherMs: number
  readonly faults: readonly Fault[]
  /** Which calls are for semaphores, leases that move, calls inside of others and effects. Default none. */
  readonly kinds?: KindsPlan
}

export interface ClientPlan {
  readonly rate: number
  readonly aheadMs: number
  readonly tasks: number
  readonly callsAll: boolean
  readonly lingers: boolean
  /** Which of the target's drivers it has, as a part of their list. */
  readonly driver: number
}

export type FateName =
  | 'slow request'
  | 'slow answer'
  | 'lost request'
  | 'lost answer'
  | 'late request'
  | 'repeated'
  | 'sent again'

/** What is known of an engine before its schedules are drawn. */
export interface Bounds {
  /** The ttls of its schedules. */
  readonly ttlMs: readonly [least: number, most: number]
  /** Its servers count in this. Default 1 ms. */
  readonly grainMs?: number
  readonly shared: boolean
  /** Whether its transport may send a request twice. */
  readonly repeats: boolean
  /** Whether a driver of it sends a request again by itself when its connection breaks before the answer. Default false. */
  readonly sendsAgain?: boolean
  /**
   * Whether all processes read one clock, and what they ask for is done before their next step: then a process may stand still only
   * between two events, since in the middle of one it would ask from the future.
   */
  readonly oneClock?: boolean
  /** Whether readers of several resources join others only where these have one token: otherwise later readers may have a lower one. */
  readonly readersApart?: boolean
  /** Whether a lease that moves to another process gets another owner and a greater token. Default true. */
  readonly moves?: boolean
}

/** Two speeds that differ by less than the allowance of a hundredth. */
const SPEEDS = { slowest: 0.9955, fastest: 1.0045 }
/** Once in this many seeds requests race on the server, so that it decides about their order. */
const RACES_EVERY = 5

const CALM = {
  'slow request': 0,
  'slow answer': 0,
  'lost request': 0,
  'lost answer': 0,
  'late request': 0,
  repeated: 0,
  'sent again': 0,
} satisfies Plan['fates']

export function drawPlan(seed: number | string, bounds: Bounds): Plan {
  const { grainMs = 1, shared, repeats, sendsAgain = false, oneClock = false, readersApart = false } = bounds
  const [least, most] = bounds.ttlMs
  const random = new Seeded(`schedule ${seed}`)
  const speed = (): number => {
    const drawn = random.pick([SPEEDS.slowest, SPEEDS.fastest, random.between(SPEEDS.slowest, SPEEDS.fastest)])
    return oneClock ? 1 : drawn
  }
  const ttlMs = Math.round(random.between(least, most) / grainMs) * grainMs
  const apartMs = oneClock ? 0 : random.pick([5, 1500, 100_000])
  const weather = random.pick(['calm', 'slow', 'lossy', 'lossy', 'all', 'all'] as const)
  const slow = (): number => (weather === 'slow' || weather === 'all' ? random.between(0.02, 0.15) : 0)
  const lossy = (): number => (weather === 'lossy' || weather === 'all' ? random.between(0.02, 0.12) : 0)
  const busyMs = Math.round(random.between(700, 1500) + ttlMs)
  const processes = Array.from({ length: random.pick([2, 2, 3]) }, () => ({
    rate: speed(),
    aheadMs: random.between(-apartMs, apartMs),
    tasks: random.pick([1, 1, 2]),
    callsAll: random.chance(0.5),
    lingers: random.chance(0.2),
    driver: random.fraction(),
  }))
  const serverRate = speed()
  const resources = random.pick([['a'], ['a'], ['a', 'b']])
  const hasReaders = shared && random.chance(0.4) && !(readersApart && resources.length > 1)
  const kinds = drawKinds(seed, bounds)
  return {
    seed: String(seed),
    processes,
    serverRate,
    resources,
    readers: hasReaders ? random.pick([0.3, 0.6]) : 0,
    ttlMs,
    maxTtlMs: 2 * ttlMs,
    latency: { baseMs: random.pick([0.2, 1, 5]), jitterMs: random.pick([0.1, 1, 5]) },
    busyMs,
    fates: {
      ...CALM,
      'slow request': slow(),
      'slow answer': slow(),
      'lost request': lossy(),
      'lost answer': lossy(),
      'late request': lossy(),
      ...(repeats ? { repeated: lossy() } : {}),
      ...(sendsAgain ? { 'sent again': lossy() } : {}),
    },
    togetherMs: Number(seed) % RACES_EVERY === 0 ? 5 : 0,
    faults:
      weather === 'calm'
        ? []
        : drawFaults(random.fork('faults'), { ttlMs, busyMs, clients: processes.length, oneClock }),
    ...(kinds === undefined ? {} : { kinds }),
  }
}

/** In every third schedule. */
function drawKinds(seed: number | string, { shared, moves = true }: Bounds): KindsPlan | undefined {
  const random = new Seeded(`kinds of schedule ${seed}`)
  if (!random.chance(1 / 3)) return undefined
  return {
    part: random.pick([0.3, 0.6, 0.9]),
    permits: random.chance(0.5) ? random.int(1, 3) : 0,
    moves: random.chance(0.6) && moves,
    // The checkers do not know yet whom an adoption that fails gives the lease back to, in the words of these engines.
    meddles: false,
    // Of these calls some are for a shared lease.
    nests: random.chance(0.5) && shared,
    effects: random.chance(0.4),
  }
}

/** Whether nothing goes wrong in it. */
export function isCalm({ fates, faults }: Plan): boolean {
  return faults.length === 0 && Object.values(fates).every((chance) => chance === 0)
}

function drawFaults(
  random: Seeded,
  { ttlMs, busyMs, clients, oneClock }: { ttlMs: number; busyMs: number; clients: number; oneClock: boolean },
): Fault[] {
  const faults: Fault[] = []
  for (let left = random.pick([0, 0, 1, 1, 2, 3]); left > 0; left--) {
    const on = { atMs: random.between(0, busyMs), process: random.int(0, clients - 1) }
    const backMs = random.between(1, 100)
    const draw = random.fraction()
    if (draw < 0.6) {
      const drawn = random.pick([0, random.int(1, 40), 'write' as const])
      const steps = oneClock ? 0 : drawn
      faults.push({ ...on, kind: 'pause', ms: random.between(0.1, 2) * ttlMs, steps })
    } else if (draw < 0.75) faults.push({ ...on, kind: 'crash-process', backMs })
    else if (draw < 0.9) {
      const since = random.pick(['now', 'answer'] as const)
      faults.push({ ...on, kind: 'close-process', steps: random.int(0, 30), since, backMs })
    } else faults.push({ ...on, kind: 'delay', node: -1, ms: random.between(0.1, 1.5) * ttlMs, forMs: ttlMs / 2 })
  }
  return faults.sort((a, b) => a.atMs - b.atMs)
}

import { resourceKeys } from '../src/engines/redis/keys.ts'
import type { Fault } from './nemesis.ts'
import type { Plan } from './plan.ts'
import type { Seeded } from './random.ts'
import type { Memory } from './server.ts'

export type Draw = (plan: Plan, random: Seeded, atMs: number) => Fault[]

/** How long a fault lasts: mostly short against the ttl, sometimes longer than it. */
export function forMs(plan: Plan, random: Seeded): number {
  return Math.round(
    random.pick([random.between(5, 100), random.between(50, plan.ttlMs), random.between(0.5, 1.5) * plan.ttlMs]),
  )
}

export function someNode(plan: Plan, random: Seeded): number {
  return random.int(0, plan.nodes.length - 1)
}

export function someProcess(plan: Plan, random: Seeded): number {
  return random.int(0, plan.processes.length - 1)
}

function someLink(plan: Plan, random: Seeded): { process: number; node: number } {
  return { process: someProcess(plan, random), node: someNode(plan, random) }
}

export function everyone(plan: Plan): number[] {
  return [...plan.processes.keys()]
}

export function cut(random: Seeded, link: { process: number; node: number }, atMs: number, ms: number): Fault {
  const way = random.pick(['both', 'both', 'to', 'from'] as const)
  return { kind: 'cut', ...link, way, reset: random.chance(0.5), atMs, forMs: ms }
}

/** What a node remembers after a crash, by how it writes to its disk. */
export function memoryOf(plan: Plan, node: number): Memory {
  const { persistence } = plan.nodes[node]!
  return persistence === 'always' ? 'kept' : persistence === 'everysec' ? 'second' : 'none'
}

/** Faults under which every promise is kept. */
const SOUND: Record<string, Draw> = {
  delay: (plan, random, atMs) => [
    { kind: 'delay', ...someLink(plan, random), ms: random.between(1, plan.ttlMs), atMs, forMs: forMs(plan, random) },
  ],
  'delay to the store': (plan, random, atMs) => [
    {
      kind: 'delay',
      process: someProcess(plan, random),
      node: -1,
      ms: random.between(1, 2 * plan.ttlMs),
      atMs,
      forMs: forMs(plan, random),
    },
  ],
  'lost requests': (plan, random, atMs) => [
    {
      kind: 'lose-request',
      ...someLink(plan, random),
      chance: random.pick([0.2, 1]),
      atMs,
      forMs: forMs(plan, random),
    },
  ],
  'lost replies': (plan, random, atMs) => [
    { kind: 'lose-reply', ...someLink(plan, random), chance: random.pick([0.2, 1]), atMs, forMs: forMs(plan, random) },
  ],
  reset: (plan, random, atMs) => [
    {
      kind: 'reset',
      ...someLink(plan, random),
      arriving: random.int(0, 3),
      lateMs: random.pick([0, 10, 300, 1000]),
      atMs,
    },
  ],
  'resets everywhere': (plan, random, atMs) =>
    everyone(plan).flatMap((process) =>
      [...plan.nodes.keys()].map((node): Fault => {
        const lateMs = random.pick([0, 20, 300])
        return { kind: 'reset', process, node, arriving: random.int(0, 3), lateMs, atMs: atMs + random.between(0, 30) }
      }),
    ),
  cut: (plan, random, atMs) => [cut(random, someLink(plan, random), atMs, forMs(plan, random))],
  'cut off node': (plan, random, atMs) => {
    const [node, ms] = [someNode(plan, random), forMs(plan, random)]
    return everyone(plan).map((process) => cut(random, { process, node }, atMs, ms))
  },
  /** Its leases run out while others wait for them. */
  'cut off process': (plan, random, atMs) => {
    const [process, ms] = [someProcess(plan, random), Math.round(random.between(1, 2) * plan.ttlMs)]
    return [...plan.nodes.keys()].map((node) => cut(random, { process, node }, atMs, ms))
  },
  /** Answers take a good part of the time that a node has. */
  'process far away': (plan, random, atMs) => {
    const process = someProcess(plan, random)
    const ms = random.between(5, 45)
    return [...plan.nodes.keys()].map((node): Fault => ({
      kind: 'delay',
      process,
      node,
      ms,
      atMs: atMs / 2,
      forMs: plan.busyMs,
    }))
  },
  partition: (plan, random, atMs) => {
    const ms = forMs(plan, random)
    const [ours, theirs] = [random.int(1, 2 ** plan.processes.length - 1), random.int(1, 2 ** plan.nodes.length - 1)]
    const faults: Fault[] = []
    for (const process of plan.processes.keys()) {
      for (const node of plan.nodes.keys()) {
        const isApart = ((ours >> process) & 1) !== ((theirs >> node) & 1)
        if (isApart)
          faults.push({ kind: 'cut', process, node, way: 'both', reset: random.chance(0.5), atMs, forMs: ms })
      }
    }
    return faults
  },
  /** Every process loses the way to some minority: whatever it gets rests on a bare majority. */
  'bare majorities': (plan, random, atMs) => {
    const most = Math.ceil(plan.nodes.length / 2) - 1
    const ms = Math.round(random.between(0.5, 1) * plan.busyMs)
    return everyone(plan).flatMap((process) => {
      const nodes = random.shuffle([...plan.nodes.keys()]).slice(0, most)
      return nodes.map((node) => cut(random, { process, node }, Math.round(atMs / 3), ms))
    })
  },
  /** Nodes are cut off one after the other and come back in another order. */
  swizzle: (plan, random, atMs) => {
    const nodes = random.shuffle([...plan.nodes.keys()]).slice(0, random.int(1, plan.nodes.length))
    const stepMs = random.between(5, 150)
    const returns = random.shuffle([...nodes.keys()])
    return nodes.flatMap((node, index) => {
      const [from, to] = [atMs + index * stepMs, atMs + (nodes.length + returns[index]!) * stepMs]
      return everyone(plan).map((process) => cut(random, { process, node }, from, to - from))
    })
  },
  slow: (plan, random, atMs) => [
    { kind: 'slow', node: someNode(plan, random), ms: random.between(1, 60), atMs, forMs: forMs(plan, random) },
  ],
  freeze: (plan, random, atMs) => [{ kind: 'freeze', node: someNode(plan, random), atMs, forMs: forMs(plan, random) }],
  crash: (plan, random, atMs) => {
    // Not all of them: if every node forgets everything, nobody can tell it from a new deployment. A lone one must not.
    const mayForget = [...plan.nodes.keys()].slice(1)
    const kept = [...plan.nodes.keys()].filter((node) => memoryOf(plan, node) === 'kept')
    const node = random.pick([...mayForget, ...kept, ...mayForget])
    if (node === undefined) return []
    return [{ kind: 'crash', node, memory: memoryOf(plan, node), atMs, forMs: random.between(5, 800) }]
  },
  /** Nodes that restart so quickly that only what they have forgotten tells of it. */
  'forgetful nodes': (plan, random, atMs) => {
    const nodes = [...plan.nodes.keys()].slice(1).filter((node) => memoryOf(plan, node) !== 'kept')
    return nodes.flatMap((node) =>
      Array.from({ length: random.int(1, 2) }, (): Fault => {
        const when = atMs + random.between(-0.5, 0.5) * plan.ttlMs
        return {
          kind: 'crash',
          node,
          memory: memoryOf(plan, node),
          atMs: Math.max(10, when),
          forMs: random.between(2, 20),
        }
      }),
    )
  },
  pause: (plan, random, atMs) => [
    {
      kind: 'pause',
      process: someProcess(plan, random),
      ms: Math.round(random.pick([random.between(5, 100), random.between(0.3, 2) * plan.ttlMs])),
      steps: random.pick([0, 0, 1, 2, 3, 5, 8]),
      atMs,
    },
  ],
  'many pauses': (plan, random, atMs) =>
    Array.from({ length: 6 }, (): Fault => {
      const ms = Math.round(random.between(10, plan.ttlMs))
      const steps = random.int(0, 12)
      return { kind: 'pause', process: someProcess(plan, random), ms, steps, atMs: atMs + random.between(0, 1000) }
    }),
  /** Pauses in the middle of running code, anywhere in it. */
  stalls: (plan, random, atMs) =>
    Array.from({ length: 12 }, (_, index): Fault => {
      const ms = Math.round(random.between(0.1, 0.8) * plan.ttlMs)
      const process = someProcess(plan, random)
      return { kind: 'pause', process, ms, steps: random.int(1, 30), atMs: atMs / 2 + index * 0.15 * plan.ttlMs }
    }),
  /** Holders stand still right before they write, for longer than their lease: what tokens are for. */
  'paused writers': (plan, random, atMs) =>
    everyone(plan).map((process): Fault => {
      const ms = Math.round(random.between(0.8, 1.6) * plan.ttlMs)
      return { kind: 'pause', process, ms, steps: 'write', atMs: atMs * random.fraction() }
    }),
  'crashed process': (plan, random, atMs) => [
    { kind: 'crash-process', process: someProcess(plan, random), backMs: random.between(10, 500), atMs },
  ],
  'wall clock of a process': (plan, random, atMs) => [
    {
      kind: 'jump-process',
      process: someProcess(plan, random),
      ms: random.pick([-3_600_000, -1000, 300, 1000, 3_600_000]),
      atMs,
    },
  ],
  noscript: (plan, random, atMs) => [{ kind: 'noscript', node: someNode(plan, random), atMs }],
  'node set back': (plan, random, atMs) => [
    { kind: 'jump', node: someNode(plan, random), ms: -random.between(10, 1500), atMs },
  ],
}

/** Faults that break an assumption, and with it a promise. */
const UNSOUND: Record<string, Draw> = {
  flushall: (plan, random, atMs) => [{ kind: 'flushall', node: someNode(plan, random), atMs }],
  eviction: (plan, random, atMs) => {
    const { lock, fence } = resourceKeys('', random.pick(plan.resources))
    return [{ kind: 'evict', node: someNode(plan, random), key: random.pick([lock, fence]), atMs }]
  },
  'node jumps ahead': (plan, random, atMs) => [
    { kind: 'jump', node: someNode(plan, random), ms: random.between(0.1, 2) * plan.ttlMs, atMs },
  ],
  'node too fast': (plan, random, atMs) => [
    { kind: 'drift', node: someNode(plan, random), rate: random.between(1.02, 1.5), atMs },
  ],
  'process too slow': (plan, random, atMs) => [
    { kind: 'drift-process', process: someProcess(plan, random), rate: random.between(0.6, 0.97), atMs },
  ],
  failover: (plan, random, atMs) => {
    if (plan.nodes[0]!.replicaLagMs === undefined) return []
    const failover: Fault = { kind: 'failover', node: 0, atMs: atMs + random.between(0, 200) }
    return random.chance(0.5) ? [failover] : [{ kind: 'cut-replica', node: 0, atMs, forMs: 300 }, failover]
  },
  'lone node forgets': (plan, random, atMs) =>
    plan.engine === 'redis'
      ? [{ kind: 'crash', node: 0, memory: random.pick(['second', 'none']), atMs, forMs: random.between(5, 300) }]
      : [],
}

/**
 * One run in twelve has no faults at all, two thirds have only such that no promise may suffer from, the rest also break
 * an assumption: then tokens and the guarded store are what must hold.
 */
export function drawFaults(plan: Plan, random: Seeded): Fault[] {
  const share = random.fraction()
  if (share < 1 / 12) return []
  const faults: Fault[] = []
  const kinds = random.shuffle(Object.keys(SOUND)).slice(0, random.int(1, 6))
  const times = random.int(1, 8)
  const when = (): number => Math.round(random.between(0.02, 0.9) * plan.busyMs)
  for (let round = 0; round < times; round++) faults.push(...SOUND[random.pick(kinds)]!(plan, random, when()))
  // What a node forgets or a clock does shows only where a lease rests on no more nodes than it needs.
  if (random.chance(0.3)) faults.push(...SOUND['bare majorities']!(plan, random, when()))
  if (random.chance(0.15)) faults.push(...SOUND['forgetful nodes']!(plan, random, when()))
  if (random.chance(0.2)) faults.push(...SOUND['paused writers']!(plan, random, when()))
  if (share > 0.7) {
    // Few runs have a replica; those that do shall lose it.
    faults.push(...UNSOUND['failover']!(plan, random, when()))
    for (let round = random.int(1, 3); round > 0; round--) {
      faults.push(...UNSOUND[random.pick(Object.keys(UNSOUND))]!(plan, random, when()))
    }
  }
  return faults.sort((a, b) => a.atMs - b.atMs)
}

/**
 * Once all three nodes have been in use, one restarts without what it knew, and it is the only one that both groups of
 * clients can reach: those whose clocks are ahead, and those whose are behind.
 */
export function drawForgetting(plan: Plan, random: Seeded): Fault[] {
  // Not the first: if every node forgets everything, nobody can tell it from a new deployment.
  const forgetful = random.int(1, 2)
  const [ours, theirs] = [0, 3 - forgetful]
  const faults = everyone(plan).map((process) => {
    const node = plan.processes[process]!.aheadMs > 0 ? ours : theirs
    return cut(random, { process, node }, random.between(200, 400), plan.busyMs)
  })
  const memory = memoryOf(plan, forgetful)
  const crash = (atMs: number): Fault => ({
    kind: 'crash',
    node: forgetful,
    memory,
    atMs,
    forMs: random.between(2, 20),
  })
  if (memory === 'second') {
    faults.push(crash(random.between(0.25, 0.5) * plan.busyMs))
    return faults.sort((a, b) => a.atMs - b.atMs)
  }
  // Those whose clocks are behind stand still before that, or come back without a memory: else they have heard of the
  // highest number, and carry it from node to node.
  const atMs = random.between(0.1, 0.4) * plan.busyMs
  faults.push(crash(atMs))
  for (const process of everyone(plan)) {
    if (plan.processes[process]!.aheadMs > 0) continue
    faults.push({
      kind: 'pause',
      process,
      ms: random.between(200, 800),
      steps: 0,
      atMs: atMs - random.between(50, 400),
    })
    const backMs = random.between(10, 500)
    if (random.chance(0.3))
      faults.push({ kind: 'crash-process', process, backMs, atMs: atMs + random.between(0, 1500) })
  }
  return faults.sort((a, b) => a.atMs - b.atMs)
}

/** What the path to the store that records effects may do: answers get lost, and what was asked takes effect or not. */
export function drawStoreFaults(plan: Plan, random: Seeded): Fault[] {
  return Array.from({ length: random.int(1, 4) }, (): Fault => {
    const link = { process: someProcess(plan, random), node: -1 }
    const atMs = random.between(0, plan.busyMs)
    const ms = forMs(plan, random)
    switch (random.int(0, 2)) {
      case 0:
        return { kind: 'lose-reply', ...link, chance: random.pick([0.2, 1]), atMs, forMs: ms }
      case 1:
        return { kind: 'reset', ...link, arriving: random.int(0, 3), lateMs: random.pick([0, 10, 300, 1000]), atMs }
      default:
        return cut(random, link, atMs, ms)
    }
  })
}

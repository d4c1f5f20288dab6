import { resourceKeys } from '../src/engines/redis/keys.ts'
import { cut, everyone, forMs, memoryOf, someNode, someProcess, type Draw } from './draw-faults.ts'
import type { Fault } from './nemesis.ts'
import type { Plan } from './plan.ts'
import type { Seeded } from './random.ts'

/** All nodes in turn, all but one, one that is replaced, or one that is restored. */
export type Loss = 'rolling' | 'most' | 'spare' | 'copy'

/** A server that has been up for a day. */
const LONG_UP_MS = 86_400_000

/** One node after the other comes back without what it had, in any spacing, on the same server or on another one. */
function rolling(plan: Plan, random: Seeded, atMs: number): Fault[] {
  const stepMs = random.pick([
    random.between(0, 5),
    random.between(2, 60),
    random.between(20, 300),
    random.between(0.1, 1) * plan.ttlMs,
  ])
  const nodes = random.chance(0.5) ? [...plan.nodes.keys()] : random.shuffle([...plan.nodes.keys()])
  const spares = random.chance(0.2)
  return nodes.map((node, index): Fault => {
    const when = { node, atMs: atMs + index * stepMs * random.between(0.8, 1.2), forMs: random.between(2, 40) }
    return spares
      ? { kind: 'replace', upMs: LONG_UP_MS, ...when }
      : { kind: 'crash', memory: memoryOf(plan, node), ...when }
  })
}

function spare(plan: Plan, random: Seeded, atMs: number): Fault {
  return { kind: 'replace', node: someNode(plan, random), upMs: LONG_UP_MS, atMs, forMs: random.between(2, 200) }
}

/** Faults beside those of draw-faults.ts under which every promise is kept. */
const SOUND: Record<string, Draw> = {
  'rolling restart': (plan, random, atMs) => (plan.engine === 'redlock' ? rolling(plan, random, atMs) : []),
  'warm spare': (plan, random, atMs) => (plan.engine === 'redlock' ? [spare(plan, random, atMs)] : []),
  denied: (plan, random, atMs) => [
    {
      kind: 'deny',
      node: someNode(plan, random),
      what: random.pick(['publish', 'memory', 'stamp']),
      atMs,
      forMs: forMs(plan, random),
    },
  ],
  'no messages': (plan, _random, atMs) =>
    [...plan.nodes.keys()].map((node) => ({ kind: 'deny', node, what: 'publish', atMs: atMs / 3, forMs: plan.busyMs })),
  'silent subscribers': (plan, random, atMs) =>
    everyone(plan).flatMap((process) =>
      [...plan.nodes.keys()].map((node): Fault => {
        const way = random.pick(['both', 'to', 'from'] as const)
        return { kind: 'forget', process, node, way, atMs: atMs * random.between(0.5, 1) }
      }),
    ),
  closed: (plan, random, atMs) => [closing(plan, random, atMs)],
  'closed again': (plan, random, atMs) => [closing(plan, random, atMs), closing(plan, random, atMs / 2)],
}

function closing(plan: Plan, random: Seeded, atMs: number): Fault {
  const since = random.pick(['now', 'answer', 'answer'] as const)
  // What follows the answer that decides are a few looks at the clock.
  const steps = since === 'answer' ? random.int(1, 4) : random.pick([0, random.int(1, 40)])
  const process = someProcess(plan, random)
  return { kind: 'close-process', process, steps, since, backMs: random.between(1, 300), atMs }
}

/** Faults that break an assumption. */
const UNSOUND: Record<string, Draw> = {
  'spoilt key': (plan, random, atMs) => {
    const { lock, fence } = resourceKeys('', random.pick(plan.resources))
    const key = random.pick([lock, fence])
    return [{ kind: 'spoil', node: someNode(plan, random), key, atMs, forMs: forMs(plan, random) }]
  },
  'young copy': (plan, random, atMs) => [
    {
      kind: 'restore',
      node: someNode(plan, random),
      copyMs: random.between(1, 0.9 * plan.busyMs),
      atMs,
      forMs: random.between(2, 200),
    },
  ],
}

/** On top of the other faults of a run. */
export function drawMore(plan: Plan, random: Seeded): Fault[] {
  const faults: Fault[] = []
  const when = (): number => Math.round(random.between(0.05, 0.9) * plan.busyMs)
  if (random.chance(0.35)) {
    for (let round = random.int(1, 2); round > 0; round--) {
      faults.push(...SOUND[random.pick(Object.keys(SOUND))]!(plan, random, when()))
    }
  }
  if (random.chance(0.02)) faults.push(...UNSOUND[random.pick(Object.keys(UNSOUND))]!(plan, random, when()))
  return faults
}

/**
 * Half of the clients reach all nodes but the first, the others all but the last, so that one node decides; and that one
 * loses its memory, or all of them do, one after the other, while everybody reaches everything.
 */
export function drawLosses(plan: Plan, what: Loss, random: Seeded): Fault[] {
  const { busyMs } = plan
  const [ours, common, theirs] = random.shuffle([0, 1, 2]) as [number, number, number]
  const cuts = everyone(plan).map((process) =>
    cut(random, { process, node: process % 2 === 0 ? ours : theirs }, random.between(100, 400), busyMs),
  )
  const faults: Fault[] = []
  if (what === 'rolling') {
    for (let round = random.int(1, 2); round > 0; round--) {
      faults.push(...rolling(plan, random, random.between(0.1, 0.8) * busyMs))
    }
  } else if (what === 'most') {
    // A client that wants the lease gets the vote of the one that is left, and lets go of it.
    const atMs = random.between(0.1, 0.4) * busyMs
    for (const node of [ours, theirs]) {
      faults.push({
        kind: 'crash',
        node,
        memory: 'none',
        atMs: atMs + random.between(0, 50),
        forMs: random.between(2, 40),
      })
    }
  } else if (what === 'spare') {
    faults.push(...cuts)
    for (let round = random.int(1, 3); round > 0; round--) {
      faults.push({ ...spare(plan, random, random.between(0.2, 0.9) * busyMs), node: common } as Fault)
    }
  } else {
    const atMs = busyMs - random.between(200, 1200)
    const copyMs = random.between(atMs - 600, atMs - 100)
    faults.push(...cuts, { kind: 'restore', node: common, copyMs, atMs, forMs: random.between(2, 50) })
  }
  if (random.chance(0.3)) {
    const atMs = random.between(0.1, 0.9) * busyMs
    faults.push({ kind: 'crash-process', process: someProcess(plan, random), backMs: random.between(5, 200), atMs })
  }
  return faults.sort((a, b) => a.atMs - b.atMs)
}

/** How the leases of a process come to run out while it holds: cut off and far away, stopped, or with every request lost. */
export type Expiry = 'far' | 'stopped' | 'torn'

/** Again and again the leases of the first process run out while others want them: how long they are counted decides. */
export function drawExpiries(plan: Plan, how: Expiry, random: Seeded): Fault[] {
  const process = 0
  const nodes = [...plan.nodes.keys()]
  const ms = random.between(20, 40)
  const delay = (node: number): Fault => ({ kind: 'delay', process, node, ms, atMs: 1, forMs: plan.busyMs })
  const faults = how === 'far' ? nodes.map(delay) : []
  for (let atMs = random.between(200, 700); atMs < plan.busyMs; atMs += random.between(2, 4) * plan.ttlMs) {
    const lastsMs = random.between(1.1, 1.5) * plan.ttlMs
    const onLink = (node: number): Fault =>
      how === 'far'
        ? cut(random, { process, node }, atMs, lastsMs)
        : { kind: 'lose-request', process, node, chance: 1, atMs, forMs: lastsMs }
    if (how === 'stopped') faults.push({ kind: 'pause', process, ms: lastsMs, steps: 0, atMs })
    else faults.push(...nodes.map(onLink))
  }
  return faults.sort((a, b) => a.atMs - b.atMs)
}

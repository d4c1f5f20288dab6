import { CORPUS, planOf } from './corpus.ts'
import { drawMore } from './draw-losses.ts'
import { withExtras } from './extras.ts'
import type { Fault } from './nemesis.ts'
import { drawKinds, drawLeases, type Plan, type RealDriver } from './plan.ts'
import { Seeded } from './random.ts'

/** What a seed means. One in thirty runs with ioredis, one in forty with node-redis, one in a hundred with iovalkey. */
export function drawPlan(seed: number | string): Plan {
  const drawn = drawWhat(seed)
  const plan = new Seeded(`lines ${seed}`).chance(0.06) ? withoutLines(drawn) : drawn
  const over = driverOf(seed)
  return withExtras(over === undefined ? plan : { ...plan, over }, seed)
}

function driverOf(seed: number | string): RealDriver | undefined {
  const one = new Seeded(`over ${seed}`).fraction()
  if (one < 0.033) return 'ioredis'
  if (one < 0.058) return 'node-redis'
  return one < 0.068 ? 'iovalkey' : undefined
}

/** Users who may not use the lines on the servers: then the first that hears of a release gets it. */
function withoutLines(plan: Plan): Plan {
  if (plan.faults.length === 0) return plan
  const denied = plan.nodes.map((_, node): Fault => ({ kind: 'deny', node, what: 'line', atMs: 1, forMs: plan.busyMs }))
  return { ...plan, faults: [...denied, ...plan.faults] }
}

/** A tenth of the seeds are like one that found something; in a third of the others there is more than leases. */
function drawWhat(seed: number | string): Plan {
  if (new Seeded(`near ${seed}`).chance(0.1)) return drawNear(seed)
  return new Seeded(`kinds ${seed}`).chance(1 / 3) ? drawKinds(seed) : drawLeases(seed)
}

/** A run beside one that found something: its faults somewhat later or earlier, some of them twice, and others among them. */
function drawNear(seed: number | string): Plan {
  const random = new Seeded(`beside ${seed}`)
  const plan = planOf(random.pick(CORPUS))
  const at = (fault: Fault): Fault => ({ ...fault, atMs: Math.max(1, fault.atMs * random.between(0.9, 1.1)) })
  const kept = plan.faults.filter(() => random.chance(0.9)).map(at)
  const again = plan.faults
    .filter(() => random.chance(0.1))
    .map((fault): Fault => ({
      ...fault,
      atMs: Math.round(random.between(0.02, 0.9) * plan.busyMs),
    }))
  const more = random.chance(0.5) ? drawMore(plan, random.fork('more')) : []
  return { ...plan, seed: String(seed), faults: [...kept, ...again, ...more].sort((a, b) => a.atMs - b.atMs) }
}

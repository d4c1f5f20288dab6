import { drawStoreFaults } from './draw-faults.ts'
import type { Plan } from './plan.ts'
import { Seeded } from './random.ts'

/**
 * What some seeds have besides. Each is drawn by a generator of its own, so that the seeds that have none of it stay what they were, and
 * those of the corpus and of the gate with them.
 */
export function withExtras(plan: Plan, seed: number | string): Plan {
  const isDrawn = (what: string, part: number): boolean => new Seeded(`${what} ${seed}`).chance(part)
  const counted = isDrawn('counts objects', 0.15) ? withObjects(plan, seed) : plan
  const looked = isDrawn('looks', 0.15) ? { ...counted, looks: true } : counted
  // A real driver is that of the library of today.
  return looked.over === undefined && isDrawn('has older', 0.1) ? withOlder(looked, seed) : looked
}

/** Holders also count in an object storage, and what has faults has some on the way there. */
export function withObjects(plan: Plan, seed: number | string): Plan {
  const random = new Seeded(`objects ${seed}`)
  const objects = { fenceIn: random.pick(['header', 'body'] as const), lostAnswers: random.pick([0, 0.1, 0.3]) }
  const more = plan.faults.length === 0 ? [] : drawStoreFaults(plan, random.fork('store'))
  return { ...plan, objects, faults: [...plan.faults, ...more].sort((a, b) => a.atMs - b.atMs) }
}

/** A rolling deployment that has come this far: some processes are of an older version, and at least one is not. */
function withOlder(plan: Plan, seed: number | string): Plan {
  const random = new Seeded(`older ${seed}`)
  const all = random.shuffle([...plan.processes.keys()])
  const older = new Set(all.slice(0, random.int(1, all.length - 1)))
  const processes = plan.processes.map((process, index) => (older.has(index) ? { ...process, isOlder: true } : process))
  return { ...plan, processes }
}

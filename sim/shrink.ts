import { failed } from './checkers/all.ts'
import type { Plan, ProcessPlan } from './plan.ts'
import { play } from './play.ts'
import type { Outcome } from './run.ts'

/** A run is tried at most this many times: each takes as long as the first. */
const MOST_TRIES = 150

/**
 * The shortest schedule that still fails the same checker: drops faults by halves, then by quarters, down to single ones,
 * for as long as that helps. Whatever is drawn elsewhere stays the same, because every part draws its own.
 */
export async function shrink(
  outcome: Outcome,
  fails: (other: Outcome) => boolean = failsLike(outcome),
): Promise<Outcome> {
  let best = outcome
  let tries = 0
  const attempt = async (plan: Plan): Promise<boolean> => {
    if (tries++ >= MOST_TRIES) return false
    const other = await play(plan)
    if (!fails(other)) return false
    best = other
    return true
  }
  const drop = async (size: number): Promise<void> => {
    for (let from = 0; from < best.plan.faults.length;) {
      const { faults } = best.plan
      const without = [...faults.slice(0, from), ...faults.slice(from + size)]
      if (!(await attempt({ ...best.plan, faults: without }))) from += size
    }
  }
  for (let size = Math.ceil(best.plan.faults.length / 2); size > 1; size = Math.ceil(size / 2)) await drop(size)
  for (const plan of simpler(best.plan)) await attempt(plan(best.plan))
  // What mattered only together with a later one can go once that is gone.
  for (let left = Infinity; best.plan.faults.length < left;) {
    left = best.plan.faults.length
    await drop(1)
  }
  return best
}

function failsLike(outcome: Outcome): (other: Outcome) => boolean {
  const wanted = new Set(failed(outcome.verdicts).map(({ checker }) => checker))
  return ({ verdicts }) => failed(verdicts).some(({ checker }) => wanted.has(checker))
}

/** What else may be left out. */
function simpler(plan: Plan): ((plan: Plan) => Plan)[] {
  const changes: ((plan: Plan) => Plan)[] = []
  if (plan.over !== undefined) changes.push((plan) => ({ ...plan, over: undefined }))
  if (plan.leaveFrozen !== undefined) changes.push((plan) => ({ ...plan, leaveFrozen: undefined }))
  if (plan.resources.length > 1) changes.push((plan) => ({ ...plan, resources: plan.resources.slice(0, 1) }))
  if (plan.looks === true) changes.push((plan) => ({ ...plan, looks: false }))
  if (plan.objects !== undefined) changes.push(({ objects: _objects, ...rest }) => rest)
  const inProcess = (index: number, change: Partial<ProcessPlan>): void =>
    void changes.push((plan) => ({
      ...plan,
      processes: plan.processes.map((process, at) => (at === index ? { ...process, ...change } : process)),
    }))
  for (const [index, { isOlder }] of plan.processes.entries()) {
    inProcess(index, { tasks: 1 })
    if (isOlder === true) inProcess(index, { isOlder: false })
  }
  return changes
}

import { hasOlder, olderLibrary } from './older.ts'
import type { Plan } from './plan.ts'
import { run, type Outcome } from './run.ts'
import { runOverSockets } from './sockets/run.ts'

/** Runs a plan with the driver that it names, and with the older version that some of its processes have. */
export async function play(plan: Plan): Promise<Outcome> {
  if (plan.over !== undefined) return runOverSockets(plan, plan.over)
  const isMixed = plan.processes.some(({ isOlder }) => isOlder)
  if (!isMixed) return run(plan)
  if (hasOlder()) return run(plan, undefined, await olderLibrary())
  return run({ ...plan, processes: plan.processes.map((process) => ({ ...process, isOlder: false })) })
}

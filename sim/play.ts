import { olderLibrary } from './older.ts'
import type { Plan } from './plan.ts'
import { run, type Outcome } from './run.ts'
import { runOverSockets } from './sockets/run.ts'

/** Runs a plan with the driver that it names, and with the older version that some of its processes have. */
export async function play(plan: Plan): Promise<Outcome> {
  if (plan.over !== undefined) return runOverSockets(plan, plan.over)
  const isMixed = plan.processes.some(({ isOlder }) => isOlder)
  return isMixed ? run(plan, undefined, await olderLibrary()) : run(plan)
}

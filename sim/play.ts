import type { Plan } from './plan.ts'
import { run, type Outcome } from './run.ts'
import { runOverSockets } from './sockets/run.ts'

/** Runs a plan with the driver that it names. */
export function play(plan: Plan): Promise<Outcome> {
  return plan.over === undefined ? run(plan) : runOverSockets(plan, plan.over)
}

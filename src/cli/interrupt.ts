import { inForeground } from './child/launch.ts'
import type { Signals } from './signals.ts'

/** Ctrl-C on a terminal that is ours: our caller is to see that we died of it. */
export async function dieIfInForeground(signals: Signals): Promise<void> {
  if (inForeground()) await signals.dieOfInterrupt()
}

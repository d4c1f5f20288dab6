import type { Fault } from './nemesis.ts'
import { drawKinds, drawLeases, drawUsual, type Plan } from './plan.ts'

/** A seed that found something. It is kept, and run before others. */
export interface Find {
  readonly seed: number
  /** What the seed meant then, and does still: what is drawn for all seeds may change, this may not. */
  readonly draw: 'usual' | 'leases' | 'kinds'
  readonly found: string
  /** The bug in the gate that this seed catches. */
  readonly bug?: string
  /** The kinds of faults without which it would show nothing. */
  readonly needs: readonly Fault['kind'][]
  readonly change?: Partial<Pick<Plan, 'readers'>> & { readonly observes?: true }
}

export const CORPUS: readonly Find[] = [
  {
    seed: 1591,
    draw: 'usual',
    found: 'an extension in the last millisecond of a lease put the signal off',
    needs: ['pause'],
    change: { observes: true },
  },
  {
    seed: 2777,
    draw: 'usual',
    found: 'a script that had to be loaded first was sent again after the release, and what it was granted stayed',
    needs: ['cut'],
    change: { observes: true },
  },
  {
    seed: 3408,
    draw: 'usual',
    found: 'the same, after a partition',
    needs: ['cut', 'crash'],
    change: { observes: true },
  },
  {
    seed: 8158,
    draw: 'usual',
    found: 'an answer that came after close() set a timer for what it led to',
    needs: ['delay'],
    change: { observes: true },
  },
  {
    seed: 12_056,
    draw: 'usual',
    found: 'a grant in the same moment as the refusal that decided an election stayed',
    needs: ['cut'],
  },
  {
    seed: 364,
    draw: 'leases',
    found: 'a job of once was let go of early when the clock of its process was set ahead',
    needs: ['jump-process'],
  },
  {
    seed: 58,
    draw: 'leases',
    found: 'locks that were closed between a grant and its admission admitted it',
    bug: 'locks that are closed between a grant and its admission admit it',
    needs: ['close-process'],
  },
  {
    seed: 83,
    draw: 'leases',
    found: 'a rolling restart was taken for a new deployment',
    bug: 'a rolling restart is taken for a new deployment',
    needs: ['crash'],
  },
  {
    seed: 497,
    draw: 'leases',
    found: 'an empty server in the place of a node voted at once, because it had been up for long',
    bug: 'an empty node votes at once if it has been up for long',
    needs: ['replace'],
  },
  {
    seed: 1316,
    draw: 'leases',
    found: 'a node that was restored from an old copy voted at once',
    needs: ['restore'],
  },
  {
    seed: 8,
    draw: 'leases',
    found: 'a release stopped at the first message that it was not permitted to send',
    bug: 'a release stops at the first message that it may not send',
    needs: ['deny'],
  },
  {
    seed: 2748,
    draw: 'leases',
    found: 'what a claim was granted before two others were lost stayed on its node',
    needs: ['pause', 'replace'],
  },
  {
    seed: 5672,
    draw: 'kinds',
    found: 'a ticket was adopted again on nodes that had forgotten that it was used',
    bug: 'a node that sits out takes part in an adoption',
    needs: ['crash'],
  },
  {
    seed: 5824,
    draw: 'kinds',
    found: 'not a bug: a place whose end was told by lost messages was offered the lock',
    needs: ['lose-request'],
  },
  {
    seed: 32_122,
    draw: 'leases',
    found: 'a claim of a reader that came after another owner had taken over its place stayed on its node',
    needs: ['lose-request', 'freeze'],
    change: { readers: 0.9 },
  },
]

const DRAWS = { usual: drawUsual, leases: drawLeases, kinds: drawKinds }

export function planOf({ seed, draw, change = {} }: Find): Plan {
  const { observes, ...rest } = change
  const plan = { ...DRAWS[draw](seed), ...rest }
  return observes ? { ...plan, processes: plan.processes.map((process) => ({ ...process, observes })) } : plan
}

import { sha1 } from '../src/engines/redis/sha1.ts'
import { exclusion } from '../sim/checkers/exclusion.ts'
import { guardedStore, lostUpdates } from '../sim/checkers/guard.ts'
import { tokens } from '../sim/checkers/tokens.ts'
import { History, type Verdict } from '../sim/history.ts'
import type { Fault } from '../sim/nemesis.ts'
import { SCENARIOS } from '../sim/scenarios/catalogue.ts'
import type { Scenario } from '../sim/scenarios/scenario.ts'
import { FREE } from './free.ts'
import type { Action, Scene } from './address.ts'

/** The failures of the catalogue, then the world without any. */
export const SCENES: readonly Scenario[] = [...SCENARIOS, FREE]

export interface Run {
  readonly scenario: Scenario
  readonly history: History
  readonly damage: string | undefined
  readonly processes: readonly string[]
  readonly nodes: readonly string[]
  readonly hasReplica: boolean
}

/** Plays a scene from its beginning: the same scene gives the same history, wherever it is played. */
export async function play(scene: Scene): Promise<Run> {
  const scenario = SCENES.find(({ name }) => name === scene.name) ?? SCENES[0]!
  const { stage, damage } = await scenario.play(scene.remedied, scene.actions.map(faultOf))
  const { plan } = stage.world
  return {
    scenario,
    damage,
    history: stage.history,
    processes: plan.processes.map((_, index) => `p${index}`),
    nodes: plan.nodes.map((_, index) => `n${index}`),
    hasReplica: plan.nodes[0]!.replicaLagMs !== undefined,
  }
}

/** By which two histories are compared. */
export function hashOf(history: History): string {
  return sha1(history.text())
}

function faultOf({ kind, process, node, atMs }: Action): Fault {
  switch (kind) {
    case 'pause':
      return { kind, atMs, process, ms: 1500, steps: 0 }
    case 'cut':
      return { kind, atMs, process, node, way: 'both', reset: false, forMs: 1000 }
    case 'delay':
      return { kind, atMs, process, node, ms: 150, forMs: 1000 }
    case 'lose-reply':
      return { kind, atMs, process, node, chance: 1, forMs: 500 }
    case 'freeze':
      return { kind, atMs, node, forMs: 1000 }
    case 'restart':
      return { kind: 'crash', atMs, node, memory: 'kept', forMs: 100 }
    case 'forget':
      return { kind: 'crash', atMs, node, memory: 'none', forMs: 100 }
    case 'jump':
      return { kind, atMs, node, ms: 2000 }
    case 'jump-process':
      return { kind, atMs, process, ms: 2000 }
    case 'evict':
      return { kind, atMs, node, key: 'a' }
    case 'failover':
      return { kind, atMs, node }
    case 'crash':
      return { kind: 'crash-process', atMs, process, backMs: 1e9 }
  }
}

/** What had happened by then. */
export function until(history: History, atMs: number): History {
  const before = new History()
  for (const event of history.events) if (event.at <= atMs) before.add(event)
  return before
}

/**
 * The words of the simulator's own checkers on what has happened so far: those that need neither the end of a run nor a record of
 * every fault, which the scenes do not keep.
 */
export function verdicts(history: History): Verdict[] {
  const words = [exclusion, tokens, guardedStore].map((checker) => checker(history))
  return [...words, plainStore(history)]
}

/** The store without a guard promises nothing: this only says what became of its updates. */
function plainStore(history: History): Verdict {
  const checker = 'plain store'
  if (!history.of('write').some(({ store }) => store === 'unguarded'))
    return { checker, verdict: 'unknown', why: 'nobody wrote' }
  const [lost] = lostUpdates(history, 'unguarded')
  return lost === undefined ? { checker, verdict: 'true' } : { checker, verdict: 'false', ...lost }
}

import { sha1 } from '../src/engines/redis/sha1.ts'
import type { History } from '../sim/history.ts'
import { SCENARIOS } from '../sim/scenarios/catalogue.ts'
import { faultsOf } from './actions.ts'
import type { Scene } from './address.ts'
import { SCENES, type Prepared } from './scenes.ts'
import { damageOf } from './verdicts.ts'
import { playWorld, SWITCHES } from './world.ts'

export interface Run {
  readonly prepared: Prepared
  readonly history: History
  readonly damage: string | undefined
  readonly processes: readonly string[]
  readonly nodes: readonly string[]
}

/** Plays a scene from its beginning: the same scene gives the same history, wherever it is played. */
export async function play(scene: Scene): Promise<Run> {
  const prepared = SCENES.find(({ name }) => name === scene.name) ?? SCENES[0]!
  const faults = faultsOf(scene.actions)
  const { setting } = prepared
  const off = new Set(SWITCHES.filter((name) => scene.off.includes(name)))
  const played =
    setting === undefined
      ? await SCENARIOS.find(({ name }) => prepared.name.endsWith(`catalogue-${name}`))!.play(
          scene.off.length === 0,
          faults,
        )
      : { stage: await playWorld(setting, scene.seed, off, faults), damage: undefined }
  const { world, history } = played.stage
  return {
    prepared,
    history,
    damage: setting === undefined ? played.damage : damageOf(history),
    processes: world.plan.processes.map((_, index) => `p${index}`),
    nodes: world.plan.nodes.map((_, index) => `n${index}`),
  }
}

/** By which two histories are compared. */
export function hashOf(history: History): string {
  return sha1(history.text())
}

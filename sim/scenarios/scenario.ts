import { leasesOf } from '../checkers/leases.ts'
import { overlap } from '../checkers/exclusion.ts'
import { lostUpdates } from '../checkers/guard.ts'
import type { Fault } from '../nemesis.ts'
import type { StoreKind } from '../store.ts'
import type { Stage } from './stage.ts'

/** A failure that people have met, told twice: without the remedy and with it. */
export interface Scenario {
  readonly name: string
  readonly title: string
  /** Which assumption is broken; nothing if none is. */
  readonly assumption: string
  readonly without: string
  readonly remedy: string
  /** More faults may happen meanwhile: those of a reader of the lab. */
  play(remedied: boolean, faults?: readonly Fault[]): Promise<Played>
}

export interface Played {
  readonly stage: Stage
  /** What went wrong, if anything. */
  readonly damage: string | undefined
}

/** Two who held it at once. */
export function twoHolders(stage: Stage): string | undefined {
  const both = overlap(leasesOf(stage.history))
  if (both === undefined) return undefined
  const [first, second] = both
  const overMs = Math.min(first.endMs, second.endMs) - second.fromMs
  const time = overMs === Infinity ? 'from then on' : `for ${overMs.toFixed(0)} ms`
  return `${first.process} and ${second.process} hold it at once, ${time}`
}

export function lostUpdate(stage: Stage, store: StoreKind): string | undefined {
  return lostUpdates(stage.history, store)[0]?.why
}

/** Somebody who did not get it by then. */
export function notBy(stage: Stage, process: string, ms: number): string | undefined {
  const gotMs = stage.done.get(process)
  if (gotMs !== undefined && gotMs <= ms) return undefined
  return `${process} ${gotMs === undefined ? 'never gets it' : `gets it after ${Math.round(gotMs)} ms`}`
}

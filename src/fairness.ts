import type { Clock } from './clock.ts'
import { Latest } from './latest.ts'
import { OtherSoftware } from './other-software.ts'
import type { Random } from './random.ts'

/** The longest time for which others are let go first: some that seemed to wait may be gone. */
const MOST_MS = 100

/** How many resources are remembered, those with the latest turns. A process that does not come back soon gets no turn kept. */
const MOST_TURNS = 1000

interface LastTurn {
  /** How many other processes waited when our last turn ended. */
  readonly rivals: number
  /** How many turns of others have ended since. */
  heard: number
  /** About the time that one of them needs to take its turn. */
  readonly unitMs: number
}

/**
 * Who goes first when several processes wait for the same resource and hear of the same release. Left to chance, one of them
 * may get three turns while another gets none. So every process counts the releases that it heard since its own last turn,
 * and lets those that have waited longer go first: by one short pause for each rival that has not had its turn. A process that
 * has not had a turn yet, or has heard as many releases as there are rivals, goes at once.
 */
export class Fairness {
  readonly #otherSoftware: OtherSoftware
  readonly #turns = new Latest<LastTurn>(MOST_TURNS)

  constructor(clock: Clock, random: Random) {
    this.#otherSoftware = new OtherSoftware(clock, random)
  }

  /** We have released it while `rivals` other processes wait. Returns how long to let others go first. */
  released(resources: readonly string[], rivals: number, tookMs: number): number {
    const turnMs = rivals > 0 ? this.#turnOver(resources, rivals, tookMs) : 0
    return Math.max(turnMs, this.#otherSoftware.pauseMs(resources))
  }

  /** Another process has released it. Returns how long to let others go first. */
  heardRelease(resources: readonly string[]): number {
    let delayMs = 0
    for (const resource of resources) {
      const turn = this.#turns.get(resource)
      if (turn === undefined) continue
      turn.heard++
      delayMs = Math.max(delayMs, Math.min((turn.rivals - turn.heard) * turn.unitMs, MOST_MS))
    }
    return Math.max(delayMs, this.#otherSoftware.pauseMs(resources))
  }

  /** Other software holds it. */
  sawOtherSoftware(resources: readonly string[]): void {
    this.#otherSoftware.saw(resources)
  }

  /** Nobody in this process waits for these any more. */
  forget(resources: readonly string[]): void {
    for (const resource of resources) this.#turns.delete(resource)
  }

  /** How many turns are remembered. */
  get size(): number {
    return this.#turns.size
  }

  #turnOver(resources: readonly string[], rivals: number, tookMs: number): number {
    // A release and an attempt take about as long, and the news must travel too; at most 50 ms, in case that time was unusual.
    const unitMs = Math.min(Math.max(2 * tookMs, 1), 50)
    for (const resource of resources) this.#turns.set(resource, { rivals, heard: 0, unitMs })
    return Math.min(rivals * unitMs, MOST_MS)
  }
}

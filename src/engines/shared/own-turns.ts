import type { LeaseRequest } from '../../engine.ts'
import { Latest } from '../../latest.ts'

/** How many resources' last turns are remembered, the latest. */
const MOST_TURNS = 1000

/** When this process last released a resource. From that follows from when its next place in the servers' own queue counts. */
export class OwnTurns {
  readonly #nowMs: () => number
  readonly #turns = new Latest<number>(MOST_TURNS)

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
  }

  /**
   * From when a place counts: from the beginning of its caller's wait, also if a caller before it has given up the place. After
   * a turn of this process it counts from that turn, so that those who waited meanwhile come first.
   */
  sinceMs({ resources, waitedMs = 0 }: LeaseRequest): number {
    const nowMs = this.#nowMs()
    return Math.min(nowMs, Math.max(nowMs - waitedMs, ...resources.map((name) => this.#turns.get(name) ?? -Infinity)))
  }

  /** This process releases these. */
  releasing(resources: readonly string[]): void {
    const nowMs = this.#nowMs()
    for (const name of resources) this.#turns.set(name, nowMs)
  }
}

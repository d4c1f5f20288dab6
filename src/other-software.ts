import type { Clock } from './clock.ts'
import type { Random } from './random.ts'

/** After we last saw other software hold a resource, it may wait for that resource for this long. */
const AROUND_MS = 2000
/** A part of the time between two looks of such software (10 to 200 ms); more would leave the lock idle for too long. */
const PAUSE_MS = 25

/**
 * Which resources other software was seen to hold lately. Its waiters poll. Processes of ours wake each other within a
 * millisecond and would never leave a free moment for such a waiter to find, so we pause while it is around.
 */
export class OtherSoftware {
  readonly #clock: Clock
  readonly #random: Random
  /** When it was last seen, by resource, the longest ago first. */
  readonly #seenMs = new Map<string, number>()

  constructor(clock: Clock, random: Random) {
    this.#clock = clock
    this.#random = random
  }

  saw(resources: readonly string[]): void {
    const nowMs = this.#clock.monotonicMs()
    for (const resource of resources) {
      this.#seenMs.delete(resource)
      this.#seenMs.set(resource, nowMs)
    }
    this.#forget(nowMs)
  }

  /** How long to leave a resource free that one of us has just released. */
  pauseMs(resources: readonly string[]): number {
    if (this.#seenMs.size === 0) return 0
    this.#forget(this.#clock.monotonicMs())
    const isAround = resources.some((resource) => this.#seenMs.has(resource))
    return isAround ? PAUSE_MS * (0.5 + this.#random.fraction()) : 0
  }

  #forget(nowMs: number): void {
    for (const [resource, seenMs] of this.#seenMs) {
      if (nowMs - seenMs < AROUND_MS) return
      this.#seenMs.delete(resource)
    }
  }
}

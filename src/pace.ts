import { backOffMs, type BackOff } from './back-off.ts'
import type { Refusal } from './engine.ts'
import { isOurs } from './owner.ts'
import type { Random } from './random.ts'

/** Where no wake-ups come, and after failures. */
const POLL: BackOff = { firstMs: 50, mostMs: 1000 }
/**
 * While other software holds it, because its release wakes nobody. Counted from when we first saw this holder, so that we
 * look at a short lock about as often as such software does itself (every 10 to 200 ms), and at a long one rarely.
 */
const FOREIGN: BackOff = { firstMs: 25, factor: 1.25, mostMs: 500 }
/** In all other cases: the lock may have been deleted by hand, or a message lost. */
const LOOK: BackOff = { firstMs: 5000, factor: 1, mostMs: 5000 }

/** How long a waiter sleeps at most before its next attempt. */
export class Pace {
  readonly #random: Random
  #attempts = 0
  #holder: string | undefined
  /** How often this holder was seen. */
  #seen = 0

  constructor(random: Random) {
    this.#random = random
  }

  failed(): number {
    return this.#pauseMs(POLL, this.#attempts++)
  }

  /** `contended`: perhaps only the first server was asked, and refused; the next attempt should ask all of them soon. */
  refused({ reason, holder, remainingMs = Infinity }: Refusal, contended: boolean): number {
    this.#seen = holder === this.#holder ? this.#seen + 1 : 0
    this.#holder = holder
    const polls = this.#attempts++
    if (holder !== undefined && !isOurs(holder)) {
      return Math.min(this.#endMs(remainingMs), this.#pauseMs(FOREIGN, this.#seen))
    }
    if (contended) return this.#pauseMs(POLL, 0)
    if (reason === 'split' || remainingMs === Infinity) return this.#pauseMs(POLL, polls)
    return Math.min(this.#endMs(remainingMs), this.#pauseMs(LOOK, 0))
  }

  /** Where no wake-ups come. */
  pollMs(): number {
    return this.#pauseMs(POLL, this.#attempts)
  }

  /** A lease that nobody renews ends then. Each waiter comes a little later than that, so that a thousand do not come at once. */
  #endMs(remainingMs: number): number {
    return remainingMs + 1 + this.#random.fraction() * Math.min(remainingMs * 0.05, 20)
  }

  #pauseMs(growth: BackOff, steps: number): number {
    return backOffMs(this.#random, growth, steps)
  }
}

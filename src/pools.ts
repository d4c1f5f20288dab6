import type { AttemptPlan } from './attempts.ts'
import type { PermitWaiter } from './permit-waiter.ts'
import { permitOf } from './permits.ts'

/** Who gets a lease directly from the one who releases it. */
export interface Heir extends AttemptPlan {
  /** It was not handed over. */
  resume(): void
}

/** How many calls of a process look for a free permit at once. */
const MOST_LOOKING = 16

interface Line {
  readonly waiters: Set<PermitWaiter>
  /** Someone in it has looked and found no free permit: those behind need not look. */
  isFull: boolean
}

/**
 * Who waits within this process for a permit of which pool, first come, first served. While nobody has looked in vain, several
 * look at once, each at other permits. From then on the first in line alone asks the servers. A permit that is released here goes
 * to the first in line that gets none yet.
 */
export class Pools {
  readonly #lines = new Map<string, Line>()

  enter(waiter: PermitWaiter): void {
    // An observer has aborted the wait.
    if (!waiter.isWanted) return
    const { pool } = waiter.permits
    const line = this.#lines.get(pool) ?? { waiters: new Set(), isFull: false }
    this.#lines.set(pool, line)
    line.waiters.add(waiter)
    this.#advance(line)
  }

  /** `handedOver`: it has its permit from this process, so that the servers have nothing new to say. */
  leave(waiter: PermitWaiter, handedOver: boolean): void {
    const { pool } = waiter.permits
    const line = this.#lines.get(pool)
    if (line?.waiters.delete(waiter) !== true) return
    if (line.waiters.size === 0) this.#lines.delete(pool)
    else this.#advance(line, handedOver, waiter)
  }

  foundNone(waiter: PermitWaiter): void {
    const line = this.#lines.get(waiter.permits.pool)!
    line.isFull = true
    this.#advance(line)
  }

  /** The first in the line of this one. */
  first({ permits }: PermitWaiter): PermitWaiter | undefined {
    const line = this.#lines.get(permits.pool)
    return line === undefined ? undefined : head(line)
  }

  /** Who gets what is released here. */
  heir(resources: readonly string[]): Heir | undefined {
    const [waiter, permit] = this.#taker(resources)
    return waiter?.heirOf(permit)
  }

  /** A permit may be free. With a delay, other processes go first. */
  freed(resources: readonly string[], delayMs: number): void {
    const [waiter, permit] = this.#taker(resources)
    waiter?.freed(permit, delayMs)
  }

  *waiters(): Generator<PermitWaiter> {
    for (const { waiters } of this.#lines.values()) yield* waiters
  }

  get size(): number {
    return this.#lines.size
  }

  #taker([resource, ...others]: readonly string[]): [taker: PermitWaiter | undefined, permit: number] {
    const found = this.#lines.size === 0 || others.length > 0 ? undefined : permitOf(resource!)
    const line = found && this.#lines.get(found.pool)
    for (const waiter of line?.waiters ?? []) if (waiter.takes(found!.permit)) return [waiter, found!.permit]
    return [undefined, -1]
  }

  #advance(line: Line, handedOver = false, before?: PermitWaiter): void {
    if (line.isFull) return head(line).first(handedOver, before)
    let looking = 0
    for (const waiter of line.waiters) {
      if (++looking > MOST_LOOKING) return
      waiter.look()
    }
  }
}

/** The first of a line, which is never empty. */
function head({ waiters }: Line): PermitWaiter {
  return waiters.values().next().value!
}

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

interface PermitLine {
  readonly waiters: Set<PermitWaiter>
  /** Someone in it has looked and found no free permit: those behind need not look. */
  isFull: boolean
}

/**
 * Who waits within this process for a permit of which pool, first come, first served. While every look has found a free one, several
 * look at once, each at other permits. From then on the first in line alone asks the servers. A permit that is released here goes
 * to the first in line that gets none yet.
 */
export class Pools {
  /**
   * The lines of each pool, by the number of its permits. While that is being changed, a pool has two: the first in line asks for
   * the permits that it knows, and one that knows more must not wait behind it.
   */
  readonly #pools = new Map<string, Map<number, PermitLine>>()

  enter(waiter: PermitWaiter): void {
    // An observer has aborted the wait.
    if (!waiter.isWanted) return
    const { pool, count } = waiter.permits
    const lines = this.#pools.get(pool) ?? new Map<number, PermitLine>()
    const line = lines.get(count) ?? { waiters: new Set(), isFull: false }
    this.#pools.set(pool, lines)
    lines.set(count, line)
    line.waiters.add(waiter)
    this.#advance(line)
  }

  /** `handedOver`: it has its permit from this process, so that the servers have nothing new to say. */
  leave(waiter: PermitWaiter, handedOver: boolean): void {
    const { pool, count } = waiter.permits
    const line = this.#line(waiter)
    if (line?.waiters.delete(waiter) !== true) return
    if (line.waiters.size > 0) return this.#advance(line, handedOver, waiter)
    const lines = this.#pools.get(pool)!
    lines.delete(count)
    if (lines.size === 0) this.#pools.delete(pool)
  }

  foundNone(waiter: PermitWaiter): void {
    const line = this.#line(waiter)!
    line.isFull = true
    this.#advance(line)
  }

  /** The first in the line of this one. */
  first(waiter: PermitWaiter): PermitWaiter | undefined {
    const line = this.#line(waiter)
    return line === undefined ? undefined : head(line)
  }

  /** Who gets what is released here. */
  heir(resources: readonly string[]): Heir | undefined {
    if (this.#pools.size === 0) return undefined
    const [waiter, permit] = this.#taker(resources)
    return waiter?.heirOf(permit)
  }

  /** A permit may be free. With a delay, other processes go first. */
  freed(resources: readonly string[], delayMs: number): void {
    if (this.#pools.size === 0) return
    const [waiter, permit] = this.#taker(resources)
    waiter?.freed(permit, delayMs)
  }

  *waiters(): Generator<PermitWaiter> {
    for (const lines of this.#pools.values()) for (const { waiters } of lines.values()) yield* waiters
  }

  get size(): number {
    return this.#pools.size
  }

  #taker([resource, ...others]: readonly string[]): [taker: PermitWaiter | undefined, permit: number] {
    const found = others.length > 0 ? undefined : permitOf(resource!)
    for (const { waiters } of (found && this.#pools.get(found.pool))?.values() ?? []) {
      for (const waiter of waiters) if (waiter.takes(found!.permit)) return [waiter, found!.permit]
    }
    return [undefined, -1]
  }

  #line({ permits: { pool, count } }: PermitWaiter): PermitLine | undefined {
    return this.#pools.get(pool)?.get(count)
  }

  #advance(line: PermitLine, handedOver = false, before?: PermitWaiter): void {
    if (line.isFull) return head(line).first(handedOver, before)
    let looking = 0
    for (const waiter of line.waiters) {
      if (++looking > MOST_LOOKING) return
      waiter.look()
    }
  }
}

/** The first of a line, which is never empty. */
function head({ waiters }: PermitLine): PermitWaiter {
  return waiters.values().next().value!
}

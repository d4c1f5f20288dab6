import type { Clock } from './clock.ts'
import { shown } from './duration.ts'
import { resourceName } from './options.ts'
import { ownerParts } from './owner.ts'
import type { Random } from './random.ts'

/** With more of them, a pool that is full would cost too many attempts. */
const MOST_PERMITS = 1000

/** A permit whose holder's time is not known counts as held for this long. */
const GUESS_MS = 1000
/** One that was waited for without success counts as held for this long: the time to look at many others. */
const REST_MS = 60_000

interface Sight {
  readonly atMs: number
  /** When its lease ends unless it is renewed. */
  readonly untilMs: number
  readonly owner: string | undefined
}

/** The permits of a semaphore, and which of them were seen in the hands of others. */
export class Permits {
  readonly pool: string
  readonly count: number
  /** Those that this process asks for right now. */
  readonly asked = new Set<number>()
  readonly #clock: Clock
  readonly #random: Random
  readonly #held = new Map<number, Sight>()

  constructor(pool: string, count: number, { clock, random }: { readonly clock: Clock; readonly random: Random }) {
    resourceName(pool)
    if (permitOf(pool) !== undefined) {
      throw new RangeError(
        `name: expected one that does not end like the name of a permit, got ${shown(pool)}; use another character than #`,
      )
    }
    if (!Number.isInteger(count) || count < 1 || count > MOST_PERMITS) {
      const kind = typeof count === 'number' ? RangeError : TypeError
      throw new kind(
        `permits: expected a whole number from 1 to ${MOST_PERMITS}, got ${shown(count)}; write how many may hold it at a time, as in semaphore('gpu', 4)`,
      )
    }
    this.pool = pool
    this.count = count
    this.#clock = clock
    this.#random = random
    // The longest name of a permit must be a name too.
    resourceName(this.name(count - 1))
  }

  name(permit: number): string {
    return `${this.pool}#${permit}`
  }

  /** What the holder of a permit says it is for, and how many permits its process counts. */
  note(own: string | undefined): string {
    return `${own === undefined ? '' : `${own}; `}pool of ${this.count}`
  }

  /** Another number of permits, by which a process was seen to count. */
  otherCount(): number | undefined {
    const counts = this.holders().map((owner) =>
      Number(/(?:^|; )pool of (\d+)$/.exec(ownerParts(owner).note ?? '')?.[1]),
    )
    return counts.find((count) => count <= MOST_PERMITS && count !== this.count)
  }

  /** Somebody else has it. */
  sawHeld(permit: number, remainingMs = GUESS_MS, owner?: string): void {
    const atMs = this.#clock.monotonicMs()
    this.#held.set(permit, { atMs, untilMs: atMs + remainingMs, owner })
  }

  /** It was waited for until now, and others have it still: the rest come first. */
  waitedFor(permit: number): void {
    const { untilMs = 0, owner } = this.#held.get(permit) ?? {}
    this.sawHeld(permit, Math.max(untilMs - this.#clock.monotonicMs(), REST_MS), owner)
  }

  /** Who was seen with them, in the order of their numbers. */
  holders(): readonly string[] {
    const nowMs = this.#clock.monotonicMs()
    const seen = [...this.#held].filter(([, { untilMs }]) => untilMs > nowMs).sort(([one], [other]) => one - other)
    return seen.flatMap(([, { owner }]) => owner ?? [])
  }

  forget(permit: number): void {
    this.#held.delete(permit)
  }

  /** All of them, as it is known now: at first those that may be free, in random order; then those that were seen held, the longest ago first. */
  *candidates(): Generator<number, undefined> {
    const nowMs = this.#clock.monotonicMs()
    const free: number[] = []
    const held: { readonly permit: number; readonly atMs: number }[] = []
    for (let permit = 0; permit < this.count; permit++) {
      const seen = this.#held.get(permit)
      if (seen !== undefined && seen.untilMs > nowMs) held.push({ permit, atMs: seen.atMs })
      else free.push(permit)
    }
    for (let left = free.length; left > 0; left--) {
      const index = Math.floor(this.#random.fraction() * left)
      yield free[index]!
      free[index] = free[left - 1]!
    }
    for (const { permit } of held.sort((some, other) => some.atMs - other.atMs)) yield permit
  }
}

/** The pool and the number in the name of a permit. */
export function permitOf(resource: string): { readonly pool: string; readonly permit: number } | undefined {
  const [, pool, number] = /^(.+)#(0|[1-9]\d{0,3})$/s.exec(resource) ?? []
  return pool === undefined ? undefined : { pool, permit: Number(number) }
}

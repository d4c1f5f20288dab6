import type { Clock, Timer } from './clock.ts'

/** The moment at which something is given up, unless it is done before. */
export interface Deadline {
  cancel(): void
}

/**
 * Deadlines with the same delay, linked in the order in which they end. Not a Set: one that is added to and deleted from all
 * the time grows a chain of tables, through which V8 keeps what was deleted until its next full collection.
 */
class Group {
  timer: Timer | undefined
  first: Entry | undefined
  last: Entry | undefined

  add(entry: Entry): void {
    entry.before = this.last
    if (this.last === undefined) this.first = entry
    else this.last.after = entry
    this.last = entry
  }
}

class Entry implements Deadline {
  readonly dueMs: number
  before: Entry | undefined
  after: Entry | undefined
  #expired: (() => void) | undefined
  #group: Group | undefined

  constructor(dueMs: number, expired: () => void, group: Group) {
    this.dueMs = dueMs
    this.#expired = expired
    this.#group = group
    group.add(this)
  }

  /** Lets go of everything, so that an entry that is over keeps nothing alive. */
  cancel(): void {
    const group = this.#group
    if (group === undefined) return
    if (this.before === undefined) group.first = this.after
    else this.before.after = this.after
    if (this.after === undefined) group.last = this.before
    else this.after.before = this.before
    this.before = this.after = this.#group = this.#expired = undefined
  }

  expire(): void {
    const expired = this.#expired
    this.cancel()
    expired?.()
  }
}

/** Delays that are all different (what is left of a request's time) gain nothing from groups: they get timers. */
const MOST_GROUPS = 64

/**
 * Deadlines that are nearly always met: every attempt and every command has one. A timer for each would cost more than the
 * rest of our own work, so those with the same delay share one timer. It is not stopped when the deadline that it was set
 * for is met.
 */
export class Deadlines {
  readonly #clock: Clock
  readonly #groups = new Map<number, Group>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  start(delayMs: number, expired: () => void): Deadline {
    let group = this.#groups.get(delayMs)
    if (group === undefined) {
      if (this.#groups.size >= MOST_GROUPS) return this.#clock.timer(expired, delayMs, true)
      group = new Group()
      this.#groups.set(delayMs, group)
    }
    const entry = new Entry(this.#clock.monotonicMs() + delayMs, expired, group)
    if (group.timer === undefined) this.#arm(delayMs, group, delayMs)
    return entry
  }

  /** All deadlines that are left expire at once, so that `close` of the locks or the engine waits for none of them. */
  close(): void {
    const groups = [...this.#groups.values()]
    this.#groups.clear()
    for (const group of groups) {
      group.timer?.cancel()
      while (group.first !== undefined) group.first.expire()
    }
  }

  #arm(delayMs: number, group: Group, inMs: number): void {
    // In the background: the connection to the server keeps the process alive.
    group.timer = this.#clock.timer(() => this.#fire(delayMs, group), inMs, true)
  }

  #fire(delayMs: number, group: Group): void {
    const now = this.#clock.monotonicMs()
    for (let { first } = group; first !== undefined; { first } = group) {
      if (first.dueMs > now) return this.#arm(delayMs, group, first.dueMs - now)
      first.expire()
    }
    group.timer = undefined
    this.#groups.delete(delayMs)
  }
}

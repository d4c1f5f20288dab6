import type { Clock, Timer } from './clock.ts'

/** The moment at which something is given up, unless it is done before. */
export interface Deadline {
  cancel(): void
}

class Entry implements Deadline {
  readonly dueMs: number
  readonly expired: () => void
  readonly #group: Set<Entry>

  constructor(dueMs: number, expired: () => void, group: Set<Entry>) {
    this.dueMs = dueMs
    this.expired = expired
    this.#group = group
    group.add(this)
  }

  cancel(): void {
    this.#group.delete(this)
  }
}

/** Deadlines with the same delay. */
interface Group {
  /** In the order in which they end. */
  readonly entries: Set<Entry>
  timer: Timer | undefined
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
      group = { entries: new Set(), timer: undefined }
      this.#groups.set(delayMs, group)
    }
    const entry = new Entry(this.#clock.monotonicMs() + delayMs, expired, group.entries)
    if (group.timer === undefined) this.#arm(delayMs, group, delayMs)
    return entry
  }

  /** All deadlines that are left expire at once, so that `close` of the locks or the engine waits for none of them. */
  close(): void {
    const groups = [...this.#groups.values()]
    this.#groups.clear()
    for (const { timer, entries } of groups) {
      timer?.cancel()
      for (const entry of entries) entry.expired()
      entries.clear()
    }
  }

  #arm(delayMs: number, group: Group, inMs: number): void {
    // In the background: the connection to the server keeps the process alive.
    group.timer = this.#clock.timer(() => this.#fire(delayMs, group), inMs, true)
  }

  #fire(delayMs: number, group: Group): void {
    const now = this.#clock.monotonicMs()
    for (const entry of group.entries) {
      if (entry.dueMs > now) return this.#arm(delayMs, group, entry.dueMs - now)
      group.entries.delete(entry)
      entry.expired()
    }
    group.timer = undefined
    this.#groups.delete(delayMs)
  }
}

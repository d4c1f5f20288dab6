import type { Clock, Timer } from './clock.ts'

/** One moment at which something is given up, unless it is done before. */
export interface Deadline {
  cancel(): void
}

class Entry implements Deadline {
  readonly dueMs: number
  readonly expired: () => void
  readonly #line: Set<Entry>

  constructor(dueMs: number, expired: () => void, line: Set<Entry>) {
    this.dueMs = dueMs
    this.expired = expired
    this.#line = line
    line.add(this)
  }

  cancel(): void {
    this.#line.delete(this)
  }
}

interface Line {
  /** In the order of their ends: all have the same delay. */
  readonly entries: Set<Entry>
  timer: Timer | undefined
}

/** Delays that are all different (what is left of a request's time) gain nothing from lines: they get timers. */
const MOST_LINES = 64

/**
 * Deadlines that are nearly always met: every attempt and every command has one. A timer each would cost more than the
 * rest of our own work, so those of the same delay stand in line behind one timer, which is not even stopped when the
 * one it was set for is met.
 */
export class Deadlines {
  readonly #clock: Clock
  readonly #lines = new Map<number, Line>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  start(delayMs: number, expired: () => void): Deadline {
    let line = this.#lines.get(delayMs)
    if (line === undefined) {
      if (this.#lines.size >= MOST_LINES) return this.#clock.timer(expired, delayMs, true)
      line = { entries: new Set(), timer: undefined }
      this.#lines.set(delayMs, line)
    }
    const entry = new Entry(this.#clock.monotonicMs() + delayMs, expired, line.entries)
    if (line.timer === undefined) this.#arm(delayMs, line, delayMs)
    return entry
  }

  /** Gives up what is left at once: nobody must wait for an answer that nobody waits for any more. */
  close(): void {
    const lines = [...this.#lines.values()]
    this.#lines.clear()
    for (const { timer, entries } of lines) {
      timer?.cancel()
      for (const entry of entries) entry.expired()
      entries.clear()
    }
  }

  #arm(delayMs: number, line: Line, inMs: number): void {
    // In the background: whoever waits for a server is kept alive by the connection.
    line.timer = this.#clock.timer(() => this.#fire(delayMs, line), inMs, true)
  }

  #fire(delayMs: number, line: Line): void {
    const now = this.#clock.monotonicMs()
    for (const entry of line.entries) {
      if (entry.dueMs > now) return this.#arm(delayMs, line, entry.dueMs - now)
      line.entries.delete(entry)
      entry.expired()
    }
    line.timer = undefined
    this.#lines.delete(delayMs)
  }
}

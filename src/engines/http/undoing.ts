import { elapsedMs, instant, sleep, type Clock } from '../../clock.ts'

/** Between two tries; twice as long each time. */
const FIRST_PAUSE_MS = 250

/**
 * Takes back what has an unknown outcome, behind the caller's back: a server that did not answer may still have done it.
 * Tries until it is taken back or has ended by itself.
 */
export class Undoing {
  readonly #clock: Clock
  readonly #closed = new AbortController()
  readonly #open = new Set<Promise<void>>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Waits for the first try alone. */
  async now(undo: () => Promise<unknown>, ttlMs: number): Promise<void> {
    try {
      await undo()
    } catch {
      this.later(undo, ttlMs)
    }
  }

  later(undo: () => Promise<unknown>, ttlMs: number): void {
    const trying = this.#keepTrying(undo, ttlMs).finally(() => this.#open.delete(trying))
    this.#open.add(trying)
  }

  /** What has not been taken back by now is left to its ttl. */
  async close(): Promise<void> {
    this.#closed.abort()
    await Promise.all(this.#open)
  }

  async #keepTrying(undo: () => Promise<unknown>, ttlMs: number): Promise<void> {
    const began = instant(this.#clock)
    for (let pauseMs = FIRST_PAUSE_MS; elapsedMs(this.#clock, began) < ttlMs; pauseMs *= 2) {
      try {
        await undo()
        return
      } catch {
        if (this.#closed.signal.aborted) return
        await sleep(this.#clock, pauseMs, this.#closed.signal)
      }
    }
  }
}

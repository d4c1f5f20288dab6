import { elapsedMs, instant, type Clock } from '../../clock.ts'

/** After a failure, then twice that, and so on: a server that restarts is back within some seconds. */
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 5000
/** While a server is away every attempt leaves one; beyond this many, the leases' ttl has to do. */
const MOST = 100

/** Removes in the background what may have been granted, until the server has answered or the lease is over by itself. */
export class Undoing {
  readonly #clock: Clock
  readonly #underWay = new Set<Promise<void>>()
  readonly #wake = new Set<() => void>()
  #closed = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  start(ttlMs: number, release: () => Promise<unknown>): void {
    if (this.#underWay.size >= MOST) return
    const work = this.#undo(ttlMs, release).finally(() => this.#underWay.delete(work))
    this.#underWay.add(work)
  }

  /** Each has one more try, which is bounded by its own deadline. */
  async close(): Promise<void> {
    this.#closed = true
    for (const wake of this.#wake) wake()
    await Promise.all(this.#underWay)
  }

  async #undo(ttlMs: number, release: () => Promise<unknown>): Promise<void> {
    const began = instant(this.#clock)
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      const isLast = this.#closed || elapsedMs(this.#clock, began) > ttlMs
      try {
        await release()
        return
      } catch {
        if (isLast) return
      }
      if (!this.#closed) await this.#pause(pauseMs)
    }
  }

  async #pause(pauseMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = this.#clock.timer(wake, pauseMs, true)
      const wakes = this.#wake
      wakes.add(wake)
      function wake(): void {
        timer.cancel()
        wakes.delete(wake)
        resolve()
      }
    })
  }
}

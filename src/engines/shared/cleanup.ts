import { elapsedMs, instant, type Clock, type Instant } from '../../clock.ts'

/** The pause after the first failure. Each further pause is twice as long: a server that restarts is back within seconds. */
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 5000
/** While a server is away every attempt leaves something behind. What exceeds this number is left to its ttl. */
const MOST = 100

type Undo = () => Promise<unknown>

/**
 * Removes what requests of unknown outcome may have left on a server: tries again in the background until the server has
 * answered, or until the lease has ended by itself. The pauses have no jitter: each process undoes only its own requests.
 */
export class Cleanup {
  readonly #clock: Clock
  readonly #isPermanent: (error: unknown) => boolean
  readonly #underWay = new Set<Promise<void>>()
  readonly #pauses = new Set<() => void>()
  #closed = false

  /** `isPermanent`: no later try would succeed after this error. */
  constructor(clock: Clock, isPermanent: (error: unknown) => boolean = () => false) {
    this.#clock = clock
    this.#isPermanent = isPermanent
  }

  /** Resolves after the first try, so that the caller's next attempt does not meet its own leftovers. Never rejects. */
  async now(undo: Undo, ttlMs: number): Promise<void> {
    const first = this.#isDone(undo)
    if (this.#underWay.size < MOST) this.#track(first, undo, ttlMs)
    await first
  }

  later(undo: Undo, ttlMs: number): void {
    if (this.#underWay.size < MOST) this.#track(this.#isDone(undo), undo, ttlMs)
  }

  /** Everything that is not undone yet has one last try, whose end the caller's request timeout sets. */
  async close(): Promise<void> {
    this.#closed = true
    for (const wake of this.#pauses) wake()
    await Promise.all(this.#underWay)
  }

  #track(first: Promise<boolean>, undo: Undo, ttlMs: number): void {
    const work = this.#repeat(first, undo, ttlMs, instant(this.#clock)).finally(() => this.#underWay.delete(work))
    this.#underWay.add(work)
  }

  async #repeat(first: Promise<boolean>, undo: Undo, ttlMs: number, began: Instant): Promise<void> {
    let isLast = this.#closed
    let isDone = await first
    for (let pauseMs = FIRST_PAUSE_MS; !isDone && !isLast; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      if (!this.#closed) await this.#pause(pauseMs)
      isLast = this.#closed || elapsedMs(this.#clock, began) > ttlMs
      isDone = await this.#isDone(undo)
    }
  }

  async #isDone(undo: Undo): Promise<boolean> {
    try {
      await undo()
      return true
    } catch (error) {
      return this.#isPermanent(error)
    }
  }

  #pause(pauseMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        timer.cancel()
        this.#pauses.delete(wake)
        resolve()
      }
      const timer = this.#clock.timer(wake, pauseMs, true)
      this.#pauses.add(wake)
    })
  }
}

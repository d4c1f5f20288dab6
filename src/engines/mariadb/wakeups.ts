import { backOffMs, type BackOff } from '../../back-off.ts'
import type { Clock, Timer } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { Watch } from '../../engine.ts'
import type { Random } from '../../random.ts'
import { inTime } from '../shared/in-time.ts'
import { Watchers } from '../shared/watchers.ts'

/** The pauses between two looks. They begin anew when somebody begins to wait, and after a release: more may follow. */
const PACE: BackOff = { firstMs: 25, factor: 1.25, mostMs: 250 }
/** A look may be answered by a replica that lags behind, or fail. So everybody makes an attempt this often in any case. */
const ATTEMPT_EVERY_MS = 1000
const LOOK_TIMEOUT_MS = 1000

export interface MariadbWakeupsOptions {
  readonly clock: Clock
  readonly random: Random
  /** Which of the resources are free, with their counters. */
  free(resources: readonly string[]): Promise<ReadonlyMap<string, string | undefined>>
}

/**
 * These servers notify nobody, so somebody has to look. One reader looks for all who wait here, with one plain read, more often
 * than each of them could make attempts, which write. docs/decisions/0014 says why `GET_LOCK` does not do it.
 */
export class MariadbWakeups {
  readonly #options: MariadbWakeupsOptions
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #watchers = new Watchers()
  /** The counters of resources that were free at the last look. One that is free with the same counter has had no holder since. */
  #free: ReadonlyMap<string, string | undefined> = new Map()
  #looks = 0
  #attemptsAtMs = 0
  #timer: Timer | undefined
  #looking: Promise<void> | undefined
  #closed = false

  constructor(options: MariadbWakeupsOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#deadlines = new Deadlines(options.clock)
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    if (this.#closed) return { armed: Promise.resolve(false), close: () => undefined }
    if (this.#watchers.size === 0) this.#attemptsAtMs = this.#clock.monotonicMs() + ATTEMPT_EVERY_MS
    const close = this.#watchers.add(resources, freed)
    this.#begin()
    return { armed: Promise.resolve(true), close }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    this.#watchers.clear()
    await this.#looking
    this.#deadlines.close()
  }

  /** With short pauses again. */
  #begin(): void {
    this.#looks = 0
    this.#timer?.cancel()
    this.#timer = undefined
    if (this.#looking === undefined) this.#wait()
  }

  #wait(): void {
    if (this.#closed || this.#watchers.size === 0) return
    const next = (): void => {
      this.#timer = undefined
      this.#looking = this.#look().finally(() => {
        this.#looking = undefined
        this.#wait()
      })
    }
    this.#timer = this.#clock.timer(next, backOffMs(this.#options.random, PACE, this.#looks++), true)
  }

  /** Never rejects: the attempts say what is wrong. */
  async #look(): Promise<void> {
    if (this.#watchers.size === 0) return
    if (this.#clock.monotonicMs() >= this.#attemptsAtMs) {
      this.#attemptsAtMs = this.#clock.monotonicMs() + ATTEMPT_EVERY_MS
      this.#watchers.wakeAll()
    }
    try {
      const looking = this.#options.free(this.#watchers.names())
      const free = await inTime(looking, this.#deadlines, LOOK_TIMEOUT_MS)
      const before = this.#free
      this.#free = free
      for (const [resource, counter] of free) {
        if (before.has(resource) && before.get(resource) === counter) continue
        if (this.#watchers.wake(resource) > 0) this.#looks = 0
      }
    } catch {
      this.#free = new Map()
    }
  }
}

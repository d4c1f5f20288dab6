import { watch, type FSWatcher } from 'node:fs'
import type { Clock, Timer } from '../../clock.ts'
import type { Blocker } from './ledger.ts'

/** How often the one in the way is looked at anyhow: a crash writes nothing that could wake us. */
const BEAT_MS = 25
/** At the latest after this time all is tried again, whatever may have gone unnoticed. */
const LONGEST_WAIT_MS = 1000
/** Looking after each write of others must leave most of the time for other things. */
const REST_PART = 10
/**
 * We hear of a write to the log a moment before the commit that it belongs to can be seen. So after the first look there
 * are two more, so much later each; the beat is there for a writer that was interrupted in between.
 */
const LOOK_AGAIN_MS = [1, 4]

interface Place {
  readonly blocker: Blocker
  readonly untilMs: number
  readonly leave: () => void
}

export interface LineHost {
  readonly clock: Clock
  /** The file that every commit is written to. */
  readonly logPath: string
  /** Neither may throw. */
  stands(blocker: Blocker): boolean
  isGone(process: string): boolean
}

/**
 * Where the waiters of this process stand until the one before them may be gone. Every commit, of any process, is written
 * to the log beside the file, so watching that is a wake-up that nobody can forget to give, not even one who is killed.
 */
export class Line {
  readonly #host: LineHost
  readonly #places = new Set<Place>()
  #watcher: FSWatcher | undefined
  /** Beats while someone waits. */
  #beat: Timer | undefined
  #look: Timer | undefined
  /** How many looks after the last write are still to come. */
  #looksLeft = 0
  #restUntilMs = 0

  constructor(host: LineHost) {
    this.#host = host
  }

  /** Resolves when it is worth another try, or when the signal aborts. */
  wait(blocker: Blocker, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const leave = (): void => {
        if (!this.#places.delete(place)) return
        signal.removeEventListener('abort', leave)
        if (this.#places.size === 0) this.#stop()
        resolve()
      }
      const waitMs = Math.min(blocker.remainingMs ?? Infinity, LONGEST_WAIT_MS)
      const place = { blocker, untilMs: this.#host.clock.monotonicMs() + waitMs, leave }
      this.#places.add(place)
      signal.addEventListener('abort', leave)
      this.#start()
      // Watched first, then looked at: what was committed in between would go unnoticed.
      if (signal.aborted || !this.#host.stands(blocker)) leave()
    })
  }

  close(): void {
    for (const { leave } of this.#places) leave()
  }

  #start(): void {
    this.#beat ??= this.#host.clock.timer(() => this.#onBeat(), BEAT_MS)
    if (this.#watcher !== undefined) return
    try {
      const watcher = watch(this.#host.logPath, () => this.#onWrite())
      this.#watcher = watcher
      watcher.on('error', () => {
        watcher.close()
        if (this.#watcher === watcher) this.#watcher = undefined
      })
    } catch {
      // Out of watches: the beat has to do.
      this.#watcher = undefined
    }
  }

  #stop(): void {
    this.#beat?.cancel()
    this.#look?.cancel()
    this.#watcher?.close()
    this.#beat = this.#look = this.#watcher = undefined
  }

  #onBeat(): void {
    this.#beat = this.#host.clock.timer(() => this.#onBeat(), BEAT_MS)
    const nowMs = this.#host.clock.monotonicMs()
    const gone = new Map<string, boolean>()
    for (const { blocker, untilMs, leave } of this.#places) {
      const { process } = blocker
      if (process !== null && !gone.has(process)) gone.set(process, this.#host.isGone(process))
      if (nowMs >= untilMs || (process !== null && gone.get(process) === true)) leave()
    }
    if (nowMs >= this.#restUntilMs) this.#lookNow()
  }

  #onWrite(): void {
    this.#looksLeft = LOOK_AGAIN_MS.length
    const restMs = this.#restUntilMs - this.#host.clock.monotonicMs()
    if (restMs <= 0) this.#lookNow()
    if (this.#places.size > 0) this.#lookIn(Math.max(restMs, LOOK_AGAIN_MS[0]!))
  }

  #lookIn(delayMs: number): void {
    this.#look ??= this.#host.clock.timer(() => {
      this.#look = undefined
      this.#looksLeft--
      this.#lookNow()
      if (this.#looksLeft > 0 && this.#places.size > 0) this.#lookIn(LOOK_AGAIN_MS.at(-this.#looksLeft)!)
    }, delayMs)
  }

  #lookNow(): void {
    const beganMs = this.#host.clock.monotonicMs()
    for (const { blocker, leave } of this.#places) {
      if (!this.#host.stands(blocker)) leave()
    }
    const endedMs = this.#host.clock.monotonicMs()
    this.#restUntilMs = endedMs + Math.max(1, (endedMs - beganMs) * REST_PART)
  }
}

import { watch, type FSWatcher } from 'node:fs'
import type { Clock, Timer } from '../../clock.ts'
import type { Blocker } from './ledger.ts'

/** How often the process in the way is looked at: a crash writes nothing that could wake us. */
const LIVES_EVERY_MS = 25
/** At the latest after this time everything is looked at again, whatever may have gone unnoticed. */
const LONGEST_WAIT_MS = 1000
/** Looking at the file after each write of others must leave most of the time for other things. */
const REST_PART = 10

interface Place {
  readonly blocker: Blocker
  readonly leave: () => void
  leftMs: number
}

export interface LineHost {
  readonly clock: Clock
  /** The file that grows with every commit. */
  readonly walPath: string
  /** Both must not throw. */
  stands(blocker: Blocker): boolean
  isGone(process: string): boolean
}

/**
 * Where the waiters of this process stand until the one before them may be gone. Every commit, of any process, writes to
 * the log beside the file, so watching that is a wake-up that nobody can forget to give, not even one who is killed.
 */
export class Line {
  readonly #host: LineHost
  readonly #places = new Set<Place>()
  #watcher: FSWatcher | undefined
  /** Beats while someone waits. */
  #timer: Timer | undefined
  #look: Timer | undefined
  #notBeforeMs = 0

  constructor(host: LineHost) {
    this.#host = host
  }

  /** Resolves when it is worth another try, or when the signal aborts. */
  wait(blocker: Blocker, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const leave = (): void => {
        if (!this.#places.delete(place)) return
        signal.removeEventListener('abort', leave)
        if (this.#places.size === 0) this.#rest()
        resolve()
      }
      const leftMs = Math.min(blocker.remainingMs ?? Infinity, LONGEST_WAIT_MS)
      const place = { blocker, leave, leftMs: this.#host.clock.monotonicMs() + leftMs }
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
    this.#timer ??= this.#host.clock.timer(() => this.#beat(), LIVES_EVERY_MS)
    if (this.#watcher !== undefined) return
    try {
      const watcher = watch(this.#host.walPath, () => this.#written())
      this.#watcher = watcher
      watcher.on('error', () => {
        watcher.close()
        if (this.#watcher === watcher) this.#watcher = undefined
      })
    } catch {
      // Out of watches: every beat looks at the file instead.
      this.#watcher = undefined
    }
  }

  #rest(): void {
    this.#timer?.cancel()
    this.#look?.cancel()
    this.#watcher?.close()
    this.#timer = this.#look = this.#watcher = undefined
  }

  #beat(): void {
    this.#timer = this.#host.clock.timer(() => this.#beat(), LIVES_EVERY_MS)
    const nowMs = this.#host.clock.monotonicMs()
    const gone = new Map<string | null, boolean>([[null, false]])
    for (const { blocker, leave, leftMs } of this.#places) {
      const { process } = blocker
      if (process !== null && !gone.has(process)) gone.set(process, this.#host.isGone(process))
      if (gone.get(process) === true || nowMs >= leftMs) leave()
    }
    if (this.#watcher === undefined && this.#places.size > 0) this.#lookNow()
  }

  #written(): void {
    const inMs = this.#notBeforeMs - this.#host.clock.monotonicMs()
    if (inMs <= 0) return this.#lookNow()
    this.#look ??= this.#host.clock.timer(() => this.#lookNow(), inMs)
  }

  #lookNow(): void {
    this.#look?.cancel()
    this.#look = undefined
    const beganMs = this.#host.clock.monotonicMs()
    for (const { blocker, leave } of this.#places) {
      if (!this.#host.stands(blocker)) leave()
    }
    const endedMs = this.#host.clock.monotonicMs()
    this.#notBeforeMs = endedMs + Math.max(1, (endedMs - beganMs) * REST_PART)
  }
}

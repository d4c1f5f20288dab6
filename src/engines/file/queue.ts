import { watch, type FSWatcher } from 'node:fs'
import type { Clock, Timer } from '../../clock.ts'
import type { Blocker } from './steps.ts'

/**
 * How often a blocker is checked even if nothing was written: a crash writes nothing that could wake us. A waiter that has
 * waited for `LONG_WAIT_MS` will probably wait longer, and checks less often.
 */
const CHECK_EVERY_MS = 25
const SLOW_CHECK_EVERY_MS = 100
const LONG_WAIT_MS = 2000
/** At the latest after this time a waiter tries again, in case everything else went unnoticed. */
const LONGEST_WAIT_MS = 1000
/** After a look, this many times its duration is left for other work: others may write all the time. */
const REST_PART = 10
/**
 * The write to the log is reported a moment before its commit can be seen. So after the first look there are two more, after
 * these pauses. The regular check is there for a writer that was interrupted in between.
 */
const LOOK_AGAIN_MS = [1, 4]

interface QueuedWaiter {
  readonly blocker: Blocker
  readonly beganMs: number
  readonly untilMs: number
  readonly leave: () => void
}

export interface FileQueueHost {
  readonly clock: Clock
  /** The file that every commit is written to. */
  readonly logPath: string
  /** Whether the blocker is still in the way. Must not throw. */
  stands(blocker: Blocker): boolean
  /** Must not throw. */
  isGone(process: string): boolean
}

/**
 * The waiters of this process, each until its blocker may be gone. Every commit of any process is written to the log beside
 * the file, so watching that log is a wake-up that no process can forget to send, not even one that is killed.
 */
export class FileQueue {
  readonly #host: FileQueueHost
  readonly #waiters = new Set<QueuedWaiter>()
  #watcher: FSWatcher | undefined
  /** Runs while someone waits. */
  #check: Timer | undefined
  #look: Timer | undefined
  /** How many looks after the last write are still to come. */
  #looksLeft = 0
  #restUntilMs = 0

  constructor(host: FileQueueHost) {
    this.#host = host
  }

  /** Resolves when another try may succeed, or when the signal aborts. The caller has waited since `beganMs`. */
  wait(blocker: Blocker, beganMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const leave = (): void => {
        if (!this.#waiters.delete(waiter)) return
        signal.removeEventListener('abort', leave)
        if (this.#waiters.size === 0) this.#stop()
        resolve()
      }
      const waitMs = Math.min(blocker.remainingMs ?? Infinity, LONGEST_WAIT_MS)
      const waiter = { blocker, beganMs, untilMs: this.#host.clock.monotonicMs() + waitMs, leave }
      this.#waiters.add(waiter)
      signal.addEventListener('abort', leave)
      this.#watch()
      this.#checkIn(Math.min(waitMs, CHECK_EVERY_MS))
      // The watch comes first: otherwise a commit between the look and the watch would go unnoticed.
      if (signal.aborted || !this.#host.stands(blocker)) leave()
    })
  }

  close(): void {
    for (const { leave } of this.#waiters) leave()
  }

  #watch(): void {
    if (this.#watcher !== undefined) return
    try {
      const watcher = watch(this.#host.logPath, () => this.#onWrite())
      this.#watcher = watcher
      watcher.on('error', () => {
        watcher.close()
        if (this.#watcher === watcher) this.#watcher = undefined
      })
    } catch {
      // The system has no watches left: the regular check has to do.
      this.#watcher = undefined
    }
  }

  #stop(): void {
    this.#check?.cancel()
    this.#look?.cancel()
    this.#watcher?.close()
    this.#check = this.#look = this.#watcher = undefined
  }

  #onCheck(): void {
    const nowMs = this.#host.clock.monotonicMs()
    const gone = new Map<string, boolean>()
    let checkMs = SLOW_CHECK_EVERY_MS
    for (const { blocker, beganMs, untilMs, leave } of this.#waiters) {
      checkMs = Math.min(checkMs, untilMs - nowMs, nowMs - beganMs < LONG_WAIT_MS ? CHECK_EVERY_MS : Infinity)
      const { process } = blocker
      if (process !== null && !gone.has(process)) gone.set(process, this.#host.isGone(process))
      if (nowMs >= untilMs || (process !== null && gone.get(process) === true)) leave()
    }
    if (nowMs >= this.#restUntilMs) this.#lookNow()
    if (this.#waiters.size > 0) this.#checkIn(checkMs)
  }

  #checkIn(delayMs: number): void {
    this.#check?.cancel()
    this.#check = this.#host.clock.timer(() => this.#onCheck(), Math.max(Math.ceil(delayMs), 1))
  }

  #onWrite(): void {
    this.#looksLeft = LOOK_AGAIN_MS.length
    const restMs = this.#restUntilMs - this.#host.clock.monotonicMs()
    if (restMs <= 0) this.#lookNow()
    if (this.#waiters.size > 0) this.#lookIn(Math.max(restMs, LOOK_AGAIN_MS[0]!))
  }

  #lookIn(delayMs: number): void {
    this.#look ??= this.#host.clock.timer(() => {
      this.#look = undefined
      this.#looksLeft--
      this.#lookNow()
      if (this.#looksLeft > 0 && this.#waiters.size > 0) this.#lookIn(LOOK_AGAIN_MS.at(-this.#looksLeft)!)
    }, delayMs)
  }

  #lookNow(): void {
    const beganMs = this.#host.clock.monotonicMs()
    for (const { blocker, leave } of this.#waiters) {
      if (!this.#host.stands(blocker)) leave()
    }
    const endedMs = this.#host.clock.monotonicMs()
    this.#restUntilMs = endedMs + Math.max(1, (endedMs - beganMs) * REST_PART)
  }
}

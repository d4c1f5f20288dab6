import type { Clock, Timer } from '../../clock.ts'
import type { Watch } from '../../engine.ts'
import { systemRandom } from '../../random.ts'
import { inTime } from '../sql/in-time.ts'
import type { Ears, Line } from './client.ts'

/** While somebody watches, the line is spoken to this often: a connection may die without a word, or be a pooler's. */
const PULSE_MS = 5000
/** Opening a connection and hearing ourselves; waiting longer would cost more than a poll. */
const ARM_TIMEOUT_MS = 2000
/** After a failure, then twice that, and so on, in which watchers are called as if they polled. */
const FIRST_RETRY_MS = 500
const LONGEST_RETRY_MS = 60_000
/** Watchers are called at least this often while nothing is heard. */
const POLL_MS = 1000

export interface WakeupsOptions {
  readonly clock: Clock
  open(ears: Ears): Promise<Line>
  tell(payload: string): Promise<unknown>
  /** What our own releases are told with. */
  readonly sign: string
}

/**
 * Releases that are told by NOTIFY, all on one channel: the payload is the teller's sign and the resource. Whether we hear is
 * found out by telling ourselves something, since a LISTEN through a pooler succeeds and is heard by nobody.
 */
export class Wakeups {
  readonly #options: WakeupsOptions
  readonly #clock: Clock
  readonly #watchers = new Map<string, Set<() => void>>()
  readonly #ears: Ears
  #line: Line | undefined
  /** When we last heard ourselves on the line that is open. */
  #provedMs = -Infinity
  #proving: Promise<boolean> | undefined
  #hearPulse: { readonly payload: string; readonly heard: () => void } | undefined
  readonly #ending = new Set<Promise<void>>()
  #failures = 0
  #retryAtMs = -Infinity
  #timer: Timer | undefined
  #closed = false

  constructor(options: WakeupsOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#ears = {
      heard: (payload) => this.#heard(payload),
      lost: () => this.#lost(),
      back: () => this.#callAll(),
    }
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    // A function of its own: the same one may be handed in twice.
    const watcher = (): void => freed()
    for (const resource of resources) {
      const watchers = this.#watchers.get(resource)
      if (watchers === undefined) this.#watchers.set(resource, new Set([watcher]))
      else watchers.add(watcher)
    }
    const armed = this.prove()
    this.#wait(PULSE_MS)
    const close = (): void => {
      for (const resource of resources) {
        const watchers = this.#watchers.get(resource)
        watchers?.delete(watcher)
        if (watchers?.size === 0) this.#watchers.delete(resource)
      }
    }
    return { armed, close }
  }

  isWatched(resources: readonly string[]): boolean {
    return resources.some((resource) => this.#watchers.has(resource))
  }

  /** True when every later release will be heard, as far as can be known: we have heard ourselves a moment ago. */
  prove(): Promise<boolean> {
    if (this.#closed) return Promise.resolve(false)
    const now = this.#clock.monotonicMs()
    if (this.#line !== undefined && now - this.#provedMs < PULSE_MS) return Promise.resolve(true)
    if (now < this.#retryAtMs) return Promise.resolve(false)
    this.#proving ??= this.#prove().finally(() => (this.#proving = undefined))
    return this.#proving
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    this.#watchers.clear()
    await this.#proving
    this.#drop()
    await Promise.all(this.#ending)
  }

  async #prove(): Promise<boolean> {
    try {
      this.#line ??= await this.#open()
      await this.#pulse()
      this.#provedMs = this.#clock.monotonicMs()
      this.#failures = 0
      return !this.#closed
    } catch {
      // Waiters poll meanwhile; check() says why.
      this.#retryAtMs = this.#clock.monotonicMs() + Math.min(FIRST_RETRY_MS * 2 ** this.#failures++, LONGEST_RETRY_MS)
      this.#drop()
      return false
    }
  }

  #open(): Promise<Line> {
    let late = false
    const opening = this.#options.open(this.#ears)
    opening.then(
      (line) => void (late && this.#end(line)),
      () => undefined,
    )
    return inTime(this.#clock, opening, ARM_TIMEOUT_MS).catch((error: unknown) => {
      late = true
      throw error
    })
  }

  #pulse(): Promise<void> {
    const payload = `pulse ${systemRandom.id()}`
    const heard = new Promise<void>((resolve) => (this.#hearPulse = { payload, heard: resolve }))
    return inTime(this.#clock, Promise.all([this.#options.tell(payload), heard]), ARM_TIMEOUT_MS).then(() => undefined)
  }

  #heard(payload: string): void {
    if (payload === this.#hearPulse?.payload) return this.#hearPulse.heard()
    const space = payload.indexOf(' ')
    const sign = payload.slice(0, space + 1)
    // Those who wait here are told of our own releases by ourselves.
    if (sign === this.#options.sign || sign === 'pulse ') return
    for (const freed of this.#watchers.get(payload.slice(space + 1)) ?? []) freed()
  }

  #lost(): void {
    this.#provedMs = -Infinity
    this.#line = undefined
    // Anything may have been released unheard.
    this.#callAll()
    this.#wait(0)
  }

  /** While somebody watches: is the line alive? If it was not, or is not, anything may have been released unheard. */
  async #tick(): Promise<void> {
    if (this.#closed || this.#watchers.size === 0) return
    const isSilent = this.#line === undefined
    // The proof may be a moment younger than the timer; it will do until the next time.
    const isProved = await this.prove()
    if (isSilent || !isProved) this.#callAll()
    const retryMs = Math.max(this.#retryAtMs - this.#clock.monotonicMs(), 0) + 1
    this.#wait(isProved ? PULSE_MS : Math.min(retryMs, POLL_MS))
  }

  #wait(delayMs: number): void {
    if (this.#closed || (this.#timer !== undefined && delayMs > 0)) return
    this.#timer?.cancel()
    const next = (): void => {
      this.#timer = undefined
      // Never rejects: a failure to prove the line is an answer.
      void this.#tick()
    }
    this.#timer = this.#clock.timer(next, delayMs, true)
  }

  #callAll(): void {
    for (const watchers of this.#watchers.values()) for (const freed of watchers) freed()
  }

  #drop(): void {
    const line = this.#line
    this.#line = undefined
    this.#provedMs = -Infinity
    if (line === undefined) return
    // In the background: what is dead takes long to close, and the watchers wait to be called.
    const ending = this.#end(line).finally(() => this.#ending.delete(ending))
    this.#ending.add(ending)
  }

  /** A line that can't be closed in time ends with its connection. */
  async #end(line: Line): Promise<void> {
    await inTime(this.#clock, line.close(), ARM_TIMEOUT_MS).catch(() => undefined)
  }
}

import { backOffMs } from '../../back-off.ts'
import type { Clock, Timer } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { Watch } from '../../engine.ts'
import type { Random } from '../../random.ts'
import { inTime } from '../shared/in-time.ts'
import { Watchers } from '../shared/watchers.ts'
import type { ListenConnection, NotificationListener } from './client.ts'

/** While somebody watches, the connection is tested this often: it may die silently, or be a pooler's. */
const PULSE_MS = 5000
/** For opening a connection, and for receiving our own notification. Waiting longer would cost more than a poll. */
const ARM_TIMEOUT_MS = 2000
/** The pauses between attempts to listen. Meanwhile watchers are called as if they polled. */
const RETRY = { firstMs: 500, mostMs: 60_000 }
/** Watchers are called at least this often while no notification can arrive. */
const POLL_MS = 1000

export interface PostgresWakeupsOptions {
  readonly clock: Clock
  readonly random: Random
  open(listener: NotificationListener): Promise<ListenConnection>
  notify(payload: string): Promise<unknown>
  /** Begins the payload of our own notifications. */
  readonly senderId: string
}

/**
 * Wakes those who wait here when another process sends a NOTIFY of a release. All are on one channel; the payload is the id of
 * the sender and the resource. A notification to ourselves shows whether they arrive, since a LISTEN through a pooler succeeds
 * and receives nothing.
 */
export class PostgresWakeups {
  readonly #options: PostgresWakeupsOptions
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #watchers = new Watchers()
  readonly #listener: NotificationListener
  #connection: ListenConnection | undefined
  /** When our own notification last arrived on the open connection. */
  #provedMs = -Infinity
  #proving: Promise<boolean> | undefined
  #pulse: { readonly payload: string; readonly arrived: () => void } | undefined
  readonly #ending = new Set<Promise<void>>()
  #failures = 0
  #retryAtMs = -Infinity
  #timer: Timer | undefined
  #closed = false

  constructor(options: PostgresWakeupsOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#deadlines = new Deadlines(options.clock)
    this.#listener = {
      notified: (payload) => this.#notified(payload),
      lost: () => this.#lost(),
      back: () => this.#watchers.wakeAll(),
    }
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    const close = this.#watchers.add(resources, freed)
    const armed = this.prove()
    this.#wait(PULSE_MS)
    return { armed, close }
  }

  isWatched(resources: readonly string[]): boolean {
    return this.#watchers.isWatched(resources)
  }

  /** True when our own notification arrived a moment ago, so that those of later releases will arrive, as far as we can know. */
  prove(): Promise<boolean> {
    if (this.#closed) return Promise.resolve(false)
    const now = this.#clock.monotonicMs()
    if (this.#connection !== undefined && now - this.#provedMs < PULSE_MS) return Promise.resolve(true)
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
    this.#deadlines.close()
  }

  async #prove(): Promise<boolean> {
    try {
      this.#connection ??= await this.#open()
      await this.#sendPulse()
      this.#provedMs = this.#clock.monotonicMs()
      this.#failures = 0
      return !this.#closed
    } catch {
      // Waiters poll meanwhile; check() says why.
      this.#retryAtMs = this.#clock.monotonicMs() + backOffMs(this.#options.random, RETRY, this.#failures++)
      this.#drop()
      return false
    }
  }

  #open(): Promise<ListenConnection> {
    const opening = this.#options.open(this.#listener)
    const late = (): void => {
      opening.then(
        (connection) => this.#end(connection),
        () => undefined,
      )
    }
    return inTime(opening, this.#deadlines, ARM_TIMEOUT_MS, { late })
  }

  async #sendPulse(): Promise<void> {
    const payload = `pulse ${this.#options.random.id()}`
    const arrival = new Promise<void>((resolve) => (this.#pulse = { payload, arrived: resolve }))
    await inTime(Promise.all([this.#options.notify(payload), arrival]), this.#deadlines, ARM_TIMEOUT_MS)
  }

  #notified(payload: string): void {
    if (payload === this.#pulse?.payload) return this.#pulse.arrived()
    const space = payload.indexOf(' ')
    const senderId = payload.slice(0, space + 1)
    // The core itself wakes those who wait in this process for our own releases.
    if (senderId === this.#options.senderId || senderId === 'pulse ') return
    this.#watchers.wake(payload.slice(space + 1))
  }

  #lost(): void {
    this.#provedMs = -Infinity
    this.#connection = undefined
    // Any resource may have been released without a notification to us.
    this.#watchers.wakeAll()
    this.#wait(0)
  }

  /** While somebody watches, tests the connection. If it did not or does not work, any resource may have been released. */
  async #tick(): Promise<void> {
    if (this.#closed || this.#watchers.size === 0) return
    const isDown = this.#connection === undefined
    // The proof may be a moment younger than the timer; it is good enough until the next time.
    const isProved = await this.prove()
    if (isDown || !isProved) this.#watchers.wakeAll()
    const retryMs = Math.max(this.#retryAtMs - this.#clock.monotonicMs(), 0) + 1
    this.#wait(isProved ? PULSE_MS : Math.min(retryMs, POLL_MS))
  }

  #wait(delayMs: number): void {
    if (this.#closed || (this.#timer !== undefined && delayMs > 0)) return
    this.#timer?.cancel()
    const next = (): void => {
      this.#timer = undefined
      // Never rejects: a connection that fails the test is an answer.
      void this.#tick()
    }
    this.#timer = this.#clock.timer(next, delayMs, true)
  }

  #drop(): void {
    const connection = this.#connection
    this.#connection = undefined
    this.#provedMs = -Infinity
    if (connection === undefined) return
    // In the background: closing a dead connection takes long, and the watchers wait to be called.
    const ending = this.#end(connection).finally(() => this.#ending.delete(ending))
    this.#ending.add(ending)
  }

  /** Listening that cannot be stopped in time ends with its connection. */
  async #end(connection: ListenConnection): Promise<void> {
    await inTime(connection.close(), this.#deadlines, ARM_TIMEOUT_MS).catch(() => undefined)
  }
}

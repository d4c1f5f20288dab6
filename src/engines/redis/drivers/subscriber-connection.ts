import type { Clock, Timer } from '../../../clock.ts'
import { isReply } from './server-errors.ts'

/** One connection in subscriber mode, as a driver has it. It never reconnects: a lost connection is closed, and another one is opened. */
export interface SubscriberConnection {
  /** Resolves when the connection is up. Rejects when it cannot be made, and when the connection is closed before. */
  readonly ready: Promise<unknown>
  subscribe(channel: string): Promise<unknown>
  unsubscribe(channel: string): Promise<unknown>
  /** Asks for any answer on this same connection. An error that the server sends is an answer, too. */
  prove(): Promise<unknown>
  /** Ends the connection at once, and with it all requests; may be called at any time, and twice. */
  close(): void
}

export interface ConnectionOwner {
  /** Is a channel subscribed on this connection? */
  isUsed(): boolean
  /** Called once, when the connection is closed for any reason. */
  gone(): void
}

/** A server that takes connections but does not answer (stopped, or its disk hangs) must not keep a subscription waiting. */
const ANSWER_MS = 5000
/**
 * A connection may die silently: a firewall forgets it, a machine loses its power. So a connection in use is asked for an answer
 * this often, and given up when none comes. A connection that was not used between two of these checks is closed.
 */
const LOOK_EVERY_MS = 2000
const PROOF_MS = 3000
const LOST = 'the connection for subscriptions was lost'

/** Checks one connection: it answers in time, it is alive while it is used, and it is closed when it is no longer used. */
export class WatchedConnection {
  readonly #connection: SubscriberConnection
  readonly #clock: Clock
  readonly #owner: ConnectionOwner
  /** What has not been answered yet: how to give it up. */
  readonly #asked = new Set<() => void>()
  #look: Timer | undefined
  #usedSinceLook = true
  #isOpen = true

  constructor(clock: Clock, open: (down: () => void) => SubscriberConnection, owner: ConnectionOwner) {
    this.#clock = clock
    this.#owner = owner
    this.#connection = open(() => this.close())
    // Handled also when nobody waits for it: an unhandled rejection would end the process.
    this.#connection.ready.catch(() => this.close())
    this.#lookLater()
  }

  /** Resolves when the server has confirmed it. */
  async subscribe(channel: string): Promise<void> {
    await this.#answered(this.#connection.ready, ANSWER_MS)
    // A sentinel client of node-redis that is closed would open another connection for it, which nobody closes.
    if (!this.#isOpen) throw new Error(LOST)
    await this.#answered(this.#connection.subscribe(channel), ANSWER_MS)
    if (!this.#isOpen) throw new Error(LOST)
  }

  async unsubscribe(channel: string): Promise<void> {
    // Without an answer the connection is given up, and the subscription with it.
    if (this.#isOpen) await this.#answered(this.#connection.unsubscribe(channel), ANSWER_MS).catch(() => undefined)
  }

  close(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.#look?.cancel()
    this.#connection.close()
    this.#owner.gone()
    // A driver may give the reason in the same moment. Some never do: ioredis 5 leaves an SSUBSCRIBE in the wrong place unanswered.
    if (this.#asked.size > 0) this.#clock.timer(() => this.#asked.forEach((giveUp) => giveUp()), 0, true)
  }

  /** A connection without an answer in time is given up, with all its subscriptions. */
  #answered(answer: Promise<unknown>, withinMs: number): Promise<void> {
    this.#usedSinceLook = true
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        timer.cancel()
        reject(new Error(LOST))
      }
      const late = (): void => {
        reject(new Error(`the connection for subscriptions gave no answer within ${withinMs} ms`))
        this.close()
      }
      const timer = this.#clock.timer(late, withinMs, true)
      this.#asked.add(giveUp)
      const settled = answer.finally(() => {
        timer.cancel()
        this.#asked.delete(giveUp)
      })
      settled.then(() => resolve(), reject)
    })
  }

  async #prove(): Promise<void> {
    try {
      await this.#answered(this.#connection.prove(), PROOF_MS)
    } catch (error) {
      // Also a refusal is an answer. An error that the driver makes without asking the server is none.
      if (!isReply(error)) this.close()
    }
  }

  #lookLater(): void {
    this.#look = this.#clock.timer(() => void this.#lookNow(), LOOK_EVERY_MS, true)
  }

  async #lookNow(): Promise<void> {
    const isUsed = this.#owner.isUsed()
    if (!isUsed && !this.#usedSinceLook && this.#asked.size === 0) return this.close()
    if (isUsed) await this.#prove()
    this.#usedSinceLook = isUsed
    if (this.#isOpen) this.#lookLater()
  }
}

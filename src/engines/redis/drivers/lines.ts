import { systemClock, type Timer } from '../../../clock.ts'
import { systemRandom } from '../../../random.ts'
import type { Subscriber } from '../client.ts'
import { redirectionOf } from './server-errors.ts'

/** One connection in subscriber mode. It never reconnects by itself: a lost line is closed and another one opened. */
export interface Line {
  /** Resolves when the connection is up. Rejects when it can't be had, and when the line is closed before. */
  readonly ready: Promise<unknown>
  subscribe(channel: string): Promise<unknown>
  unsubscribe(channel: string): Promise<unknown>
  /** Ends the connection at once; may be called at any time, and twice. */
  close(): void
}

export interface LineEvents {
  message(channel: string, message: string): void
  /** The connection is gone or no longer the right one. May be called more than once. */
  down(): void
}

/** How one driver opens its subscriber connections. */
export interface Lines<Source> {
  /** The server that tells of a channel: always the same, or on a Cluster the channel's master. `stale`: ask anew. */
  place(channel: string, stale: boolean): Promise<Place<Source>>
  open(source: Source, events: LineEvents): Line
}

export interface Place<Source> {
  /** Channels of the same name share a line. */
  readonly name: string
  /** What the connection is made from. */
  readonly source: Source
}

/** A server that takes connections but does not answer (stopped, or its disk hangs) must not keep a subscription waiting. */
const ANSWER_MS = 5000
/** Opening again after a loss: quick at first, since most losses are restarts and failovers of a moment. */
const FIRST_RETRY_MS = 50
const LONGEST_RETRY_MS = 2000

interface Subscription {
  readonly onMessage: (message: string) => void
  line: Line | undefined
}

/** Keeps subscriptions alive over lost connections, in the same way for every driver. */
export class ResilientSubscriber<Source> implements Subscriber {
  readonly #lines: Lines<Source>
  readonly #open = new Map<string, Line>()
  readonly #subscriptions = new Map<string, Subscription>()
  readonly #gapCallbacks: (() => void)[] = []
  #retry: Timer | undefined
  #failures = 0
  #closed = false

  constructor(lines: Lines<Source>) {
    this.#lines = lines
  }

  async subscribe(channel: string, onMessage: (message: string) => void): Promise<void> {
    if (this.#closed) throw new Error('the subscriber is closed')
    const subscription: Subscription = { onMessage, line: undefined }
    this.#subscriptions.set(channel, subscription)
    try {
      await this.#attach(channel, subscription)
    } catch (error) {
      if (this.#subscriptions.get(channel) === subscription) this.#subscriptions.delete(channel)
      throw error
    }
  }

  async unsubscribe(channel: string): Promise<void> {
    const line = this.#subscriptions.get(channel)?.line
    this.#subscriptions.delete(channel)
    // When it fails the line is lost, and with it the subscription.
    if (line !== undefined) await this.#answered(line.unsubscribe(channel), line).catch(() => undefined)
  }

  onGap(callback: () => void): void {
    this.#gapCallbacks.push(callback)
  }

  close(): Promise<void> {
    this.#closed = true
    this.#retry?.cancel()
    this.#subscriptions.clear()
    for (const line of this.#open.values()) line.close()
    this.#open.clear()
    return Promise.resolve()
  }

  /** Resolves when the server has confirmed the channel, on the line that is responsible for it. */
  async #attach(channel: string, subscription: Subscription): Promise<void> {
    for (let stale = false; ; stale = true) {
      try {
        const line = this.#line(await this.#answered(this.#lines.place(channel, stale)))
        await this.#answered(line.ready, line)
        await this.#answered(line.subscribe(channel), line)
        if (![...this.#open.values()].includes(line)) throw new Error('the connection for subscriptions was lost')
        subscription.line = line
        // Given up meanwhile. (Not so when somebody subscribes anew: this would end their subscription.)
        if (!this.#subscriptions.has(channel)) await line.unsubscribe(channel)
        return
      } catch (error) {
        if (stale || redirectionOf(error)?.kind !== 'MOVED') throw error
      }
    }
  }

  #line(place: Place<Source>): Line {
    if (this.#closed) throw new Error('the subscriber is closed')
    const open = this.#open.get(place.name)
    if (open !== undefined) return open
    const line = this.#lines.open(place.source, {
      message: (channel, message) => this.#subscriptions.get(channel)?.onMessage(message),
      down: () => this.#down(line),
    })
    this.#open.set(place.name, line)
    // Also heard when nobody is waiting for it any more: an unhandled rejection would end the process.
    line.ready.catch(() => this.#down(line))
    return line
  }

  /** A line that leaves us without an answer is given up, with everything else that it carries. */
  #answered<T>(answer: Promise<T>, line?: Line): Promise<T> {
    return new Promise((resolve, reject) => {
      const late = (): void => {
        reject(new Error(`a subscription was not answered within ${ANSWER_MS} ms`))
        if (line !== undefined) this.#down(line)
      }
      const timer = systemClock.timer(late, ANSWER_MS, true)
      const settled = answer.finally(() => timer.cancel())
      settled.then(resolve, reject)
    })
  }

  #down(line: Line): void {
    for (const [name, open] of this.#open) if (open === line) this.#open.delete(name)
    line.close()
    const lost = [...this.#subscriptions.values()].filter((subscription) => subscription.line === line)
    for (const subscription of lost) subscription.line = undefined
    if (lost.length > 0) this.#retryLater()
  }

  #retryLater(): void {
    if (this.#closed || this.#retry !== undefined) return
    const longestMs = Math.min(FIRST_RETRY_MS * 2 ** this.#failures++, LONGEST_RETRY_MS)
    // Half of it by chance, so that all the processes of a fleet don't come back at the same moment.
    const delayMs = longestMs * (0.5 + systemRandom.fraction() / 2)
    this.#retry = systemClock.timer(() => void this.#attachLost(), delayMs, true)
  }

  async #attachLost(): Promise<void> {
    this.#retry = undefined
    const lost = [...this.#subscriptions].filter(([, subscription]) => subscription.line === undefined)
    const attached = lost.map(([channel, subscription]) => this.#attach(channel, subscription))
    const outcomes = await Promise.allSettled(attached)
    if (this.#closed) return
    if (outcomes.some(({ status }) => status === 'rejected')) return this.#retryLater()
    this.#failures = 0
    for (const callback of this.#gapCallbacks) callback()
  }
}

import { backOffMs } from '../../../back-off.ts'
import type { Clock, Timer } from '../../../clock.ts'
import type { Random } from '../../../random.ts'
import type { RedisClient, Subscriber } from '../client.ts'
import { redirectionOf } from './server-errors.ts'
import { WatchedConnection, type SubscriberConnection } from './subscriber-connection.ts'

export interface ConnectionEvents {
  message(channel: string, message: string): void
  /** The connection is lost, or no longer the right one. May be called more than once. */
  down(): void
}

/** How one driver opens its subscriber connections. */
export interface SubscriberConnections<Source> {
  /** The server that publishes on a channel: always the same, or on a Cluster the channel's master. `stale`: ask the Cluster again. */
  serverOf(channel: string, stale: boolean): Promise<ChannelServer<Source>>
  open(source: Source, events: ConnectionEvents): SubscriberConnection
}

export interface ChannelServer<Source> {
  /** Channels of the same name share a connection. */
  readonly name: string
  /** What the connection is made from. */
  readonly source: Source
}

/** `subscriber` of a client. */
export function resilient<Source>(connections: SubscriberConnections<Source>): RedisClient['subscriber'] {
  return (clock, random) => new ResilientSubscriber(connections, clock, random)
}

/** The same where all channels share a connection. */
export function ofOneServer(open: (events: ConnectionEvents) => SubscriberConnection): RedisClient['subscriber'] {
  return resilient({
    serverOf: () => Promise.resolve({ name: '', source: undefined }),
    open: (_source, events) => open(events),
  })
}

/** Opening again after a loss: quickly at first, because most losses are short restarts and failovers. */
const RETRIES = { firstMs: 50, mostMs: 2000 }
/** How long it may take to find a channel's server: a Cluster may have to be asked. */
const SERVER_MS = 5000

interface Subscription {
  readonly channel: string
  readonly onMessage: (message: string) => void
  connection: WatchedConnection | undefined
}

/** Keeps subscriptions alive over lost connections, in the same way for every driver. */
export class ResilientSubscriber<Source> implements Subscriber {
  readonly #connections: SubscriberConnections<Source>
  readonly #clock: Clock
  readonly #random: Random
  readonly #open = new Map<string, WatchedConnection>()
  readonly #subscriptions = new Map<string, Subscription>()
  readonly #gapCallbacks: ((channel: string) => void)[] = []
  readonly #retries = new Set<Timer>()
  #closed = false

  constructor(connections: SubscriberConnections<Source>, clock: Clock, random: Random) {
    this.#connections = connections
    this.#clock = clock
    this.#random = random
  }

  async subscribe(channel: string, onMessage: (message: string) => void): Promise<void> {
    if (this.#closed) throw new Error('the subscriber is closed')
    const subscription: Subscription = { channel, onMessage, connection: undefined }
    this.#subscriptions.set(channel, subscription)
    try {
      await this.#attach(subscription)
    } catch (error) {
      if (this.#isWanted(subscription)) this.#subscriptions.delete(channel)
      throw error
    }
  }

  async unsubscribe(channel: string): Promise<void> {
    const connection = this.#subscriptions.get(channel)?.connection
    this.#subscriptions.delete(channel)
    await connection?.unsubscribe(channel)
  }

  onGap(callback: (channel: string) => void): void {
    this.#gapCallbacks.push(callback)
  }

  close(): Promise<void> {
    this.#closed = true
    for (const retry of this.#retries) retry.cancel()
    this.#subscriptions.clear()
    for (const connection of this.#open.values()) connection.close()
    return Promise.resolve()
  }

  /** Resolves when the server has confirmed the channel, on the connection that is responsible for it. */
  async #attach(subscription: Subscription, askAnew = false): Promise<void> {
    const { channel } = subscription
    for (let stale = askAnew; ; stale = true) {
      try {
        const connection = this.#connection(await this.#server(channel, stale))
        await connection.subscribe(channel)
        subscription.connection = connection
        // It was given up meanwhile. (Not if a new subscription of the channel has begun: this would end it.)
        if (!this.#subscriptions.has(channel)) await connection.unsubscribe(channel)
        return
      } catch (error) {
        if (stale || redirectionOf(error)?.kind !== 'MOVED') throw error
      }
    }
  }

  #server(channel: string, stale: boolean): Promise<ChannelServer<Source>> {
    return new Promise((resolve, reject) => {
      const late = (): void =>
        reject(new Error(`the server of channel ${channel} was not found within ${SERVER_MS} ms`))
      const timer = this.#clock.timer(late, SERVER_MS, true)
      this.#connections
        .serverOf(channel, stale)
        .finally(() => timer.cancel())
        .then(resolve, reject)
    })
  }

  #connection({ name, source }: ChannelServer<Source>): WatchedConnection {
    if (this.#closed) throw new Error('the subscriber is closed')
    const open = this.#open.get(name)
    if (open !== undefined) return open
    const message = (channel: string, text: string): void => this.#subscriptions.get(channel)?.onMessage(text)
    const connection = new WatchedConnection(this.#clock, (down) => this.#connections.open(source, { message, down }), {
      isUsed: () => this.#carried(connection).length > 0,
      gone: () => {
        this.#open.delete(name)
        const lost = this.#carried(connection)
        for (const subscription of lost) subscription.connection = undefined
        this.#restoreLater(lost, 0)
      },
    })
    this.#open.set(name, connection)
    return connection
  }

  #carried(connection: WatchedConnection): Subscription[] {
    return [...this.#subscriptions.values()].filter((subscription) => subscription.connection === connection)
  }

  #isWanted(subscription: Subscription): boolean {
    return this.#subscriptions.get(subscription.channel) === subscription
  }

  /** The subscriptions of each connection are restored by themselves: on a Cluster, one dead master must not hold up the others. */
  #restoreLater(lost: readonly Subscription[], failures: number): void {
    const wanted = lost.filter((subscription) => this.#isWanted(subscription))
    if (wanted.length === 0) return
    const retry = this.#clock.timer(
      () => {
        this.#retries.delete(retry)
        void this.#restore(wanted, failures)
      },
      backOffMs(this.#random, RETRIES, failures),
      true,
    )
    this.#retries.add(retry)
  }

  async #restore(lost: readonly Subscription[], failures: number): Promise<void> {
    const failed: Subscription[] = []
    const restored = lost.map(async (subscription) => {
      if (!this.#isWanted(subscription)) return
      try {
        // Its server may have changed. Asked every second time only, because with a dead server the answer takes long.
        await this.#attach(subscription, failures % 2 === 1)
      } catch {
        failed.push(subscription)
        return
      }
      // At once: other channels may take longer, and the waiters of this one may have missed a release.
      if (this.#isWanted(subscription)) for (const callback of this.#gapCallbacks) callback(subscription.channel)
    })
    await Promise.all(restored)
    this.#restoreLater(failed, failures + 1)
  }
}

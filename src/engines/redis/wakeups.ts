import type { Clock, Timer } from '../../clock.ts'
import type { Watch } from '../../engine.ts'
import type { Random } from '../../random.ts'
import type { Subscriber } from './client.ts'
import { OFFERED } from './line-lua.ts'
import type { RedisNode } from './node.ts'
import { holderName } from './steps.ts'
import { quorumOf } from './votes.ts'

/** A channel stays subscribed for a while after its last watcher left: under contention the next one comes at once. */
const LINGER_MS = 1000
/** A node that is slow to confirm a subscription is polled instead; waiting longer would cost more than a poll. */
const ARM_TIMEOUT_MS = 1000
/** How long to wait for the other nodes' messages after the first: an attempt before they are free, too, is wasted. */
const GATHER_MS = 2

/** How many of our own releases are remembered, so that they do not wake ourselves. */
const MOST_OWN = 256

/** Node `index` has offered the lock to this owner. */
type Told = (index: number, owner: string) => void

interface Channel {
  /** What to call after a release, and what to call with an offer, if it wants to know of these. */
  readonly watchers: Map<() => void, Told | undefined>
  /** True when enough nodes have confirmed that no release can go unnoticed. */
  armed: Promise<boolean>
  readonly confirmed: Set<number>
  /** Nodes whose message of a release came since the watchers were last called. */
  readonly heard: Set<number>
  /** The owner whose release the watchers were last called for; messages of slower nodes about it are ignored. */
  called: string
  /** No longer wanted: a subscription that is confirmed after this is ended again. */
  gone: boolean
  gathering: Timer | undefined
  lingering: Timer | undefined
}

/** Pub/sub over the nodes: a release is published on each, and watchers are called when a quorum of messages has come. */
export class RedisWakeups {
  readonly #nodes: readonly RedisNode[]
  readonly #clock: Clock
  readonly #random: Random
  readonly #quorum: number
  readonly #channels = new Map<string, Channel>()
  /** Owners of leases that were released here. */
  readonly #own = new Set<string>()
  #subscribers: (Subscriber | undefined)[] | undefined
  #closed = false

  constructor(nodes: readonly RedisNode[], clock: Clock, random: Random) {
    this.#nodes = nodes
    this.#clock = clock
    this.#random = random
    this.#quorum = quorumOf(nodes.length)
  }

  /** `offered` is called with every offer, for any owner. */
  watch(names: readonly string[], freed: () => void, offered?: Told): Watch {
    const channels = names.map((name) => this.#channel(name))
    for (const channel of channels) {
      channel.watchers.set(freed, offered)
      channel.lingering?.cancel()
      channel.lingering = undefined
    }
    const armed = Promise.all(channels.map((channel) => channel.armed)).then((all) => all.every(Boolean))
    const close = (): void => {
      for (const [index, channel] of channels.entries()) {
        channel.watchers.delete(freed)
        if (channel.watchers.size === 0) this.#linger(names[index]!, channel)
      }
    }
    return { armed, close }
  }

  /** How many of a release's listeners on this node are ourselves. */
  ownSubscriptions(index: number, names: readonly string[]): number {
    return names.some((name) => this.#channels.get(name)?.confirmed.has(index) === true) ? 1 : 0
  }

  /** We are about to release this owner's lease; the waiters of this process are woken without a message. */
  releasing(owner: string): void {
    if (this.#channels.size === 0) return
    this.#own.add(owner)
    if (this.#own.size > MOST_OWN) this.#own.delete(this.#own.values().next().value!)
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const channel of this.#channels.values()) {
      channel.gathering?.cancel()
      channel.lingering?.cancel()
    }
    this.#channels.clear()
    const open = (this.#subscribers ?? []).filter((subscriber) => subscriber !== undefined)
    await Promise.all(open.map((subscriber) => subscriber.close().catch(() => undefined)))
  }

  #channel(name: string): Channel {
    const known = this.#channels.get(name)
    if (known !== undefined) return known
    const channel: Channel = {
      watchers: new Map(),
      armed: Promise.resolve(false),
      confirmed: new Set(),
      heard: new Set(),
      called: '',
      gone: false,
      gathering: undefined,
      lingering: undefined,
    }
    channel.armed = this.#arm(name, channel)
    this.#channels.set(name, channel)
    // A channel that could not be armed is forgotten, so that the next watcher tries anew.
    void channel.armed.then((armed) => {
      if (!armed && this.#channels.get(name) === channel) this.#channels.delete(name)
    })
    return channel
  }

  /** A release reaches a quorum of nodes, and our subscriptions a quorum, too: the two have a node in common. */
  #arm(name: string, channel: Channel): Promise<boolean> {
    const subscribers = this.#open()
    const { confirmed } = channel
    return new Promise((resolve) => {
      let left = subscribers.length
      const timer = this.#clock.timer(() => resolve(false), ARM_TIMEOUT_MS)
      const settle = (): void => {
        left--
        if (confirmed.size < this.#quorum && left > 0) return
        timer.cancel()
        resolve(confirmed.size >= this.#quorum)
      }
      for (const [index, subscriber] of subscribers.entries()) {
        if (subscriber === undefined) {
          settle()
          continue
        }
        subscriber
          .subscribe(name, (owner) => this.#heard(name, index, owner))
          .then(
            () => {
              if (channel.gone) this.#end(name, index)
              else confirmed.add(index)
              settle()
            },
            () => settle(),
          )
      }
    })
  }

  /**
   * Not shared with other engines on the same client: PUBLISH returns the number of connections, from which a release
   * concludes whether another process waits.
   */
  #open(): (Subscriber | undefined)[] {
    this.#subscribers ??= this.#nodes.map((node) => {
      const subscriber = node.client.subscriber(this.#clock, this.#random)
      subscriber?.onGap((name) => {
        // Messages in between are gone, so the resource may be free.
        const channel = this.#channels.get(name)
        if (channel !== undefined) this.#call(channel)
      })
      return subscriber
    })
    return this.#subscribers
  }

  #heard(name: string, index: number, owner: string): void {
    const channel = this.#channels.get(name)
    if (owner.startsWith(OFFERED)) {
      for (const offered of channel?.watchers.values() ?? []) offered?.(index, holderName(owner))
      return
    }
    if (channel === undefined || owner === channel.called || this.#own.has(holderName(owner))) return
    channel.heard.add(index)
    if (channel.heard.size >= this.#quorum) {
      channel.called = owner
      return this.#call(channel)
    }
    channel.gathering ??= this.#clock.timer(() => this.#call(channel), GATHER_MS)
  }

  #call(channel: Channel): void {
    channel.gathering?.cancel()
    channel.gathering = undefined
    channel.heard.clear()
    for (const freed of channel.watchers.keys()) freed()
  }

  #linger(name: string, channel: Channel): void {
    channel.lingering?.cancel()
    channel.lingering = this.#clock.timer(
      () => {
        // Another channel may have come under its name since, if this one could not be armed.
        const current = this.#channels.get(name)
        if (this.#closed || channel.watchers.size > 0 || (current !== undefined && current !== channel)) return
        channel.gathering?.cancel()
        channel.gone = true
        this.#channels.delete(name)
        for (const index of channel.confirmed) this.#end(name, index)
      },
      LINGER_MS,
      true,
    )
  }

  #end(name: string, index: number): void {
    // A subscription that cannot be ended ends with its connection.
    this.#subscribers?.[index]?.unsubscribe(name).catch(() => undefined)
  }
}

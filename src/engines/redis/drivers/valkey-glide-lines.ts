import { systemClock, type Timer } from '../../../clock.ts'
import type { Subscriber } from '../client.ts'
import { hasMethods, property, text } from './expected.ts'
import { ResilientSubscriber, type Line, type LineEvents } from './lines.ts'
import { plain } from './reply.ts'
import { DECODER_STRING, type GlideClient } from './valkey-glide-types.ts'

/** What is used of a second GLIDE client, which subscribes. */
interface GlideCopy extends GlideClient {
  subscribe(channels: string[], timeoutMs: number): Promise<unknown>
  unsubscribe(channels: string[], timeoutMs: number): Promise<unknown>
  unsubscribeLazy(channels: null): Promise<unknown>
  ssubscribe(channels: string[], timeoutMs: number): Promise<unknown>
  sunsubscribe(channels: string[], timeoutMs: number): Promise<unknown>
  sunsubscribeLazy(channels: null): Promise<unknown>
}

type MakeCopy = (onMessage: (message: unknown) => void) => Promise<GlideCopy>

/**
 * GLIDE's clients can't be copied, but keep their configuration, from which their class makes another one. Where it has
 * none, or is too old to subscribe on a running connection, there is no subscriber.
 */
export function glideSubscriber(client: GlideClient, cluster: boolean): Subscriber | undefined {
  const config = property(client, 'config')
  const create = property(client.constructor, 'createClient')
  if (!canSubscribe(client, cluster) || typeof config !== 'object' || typeof create !== 'function') return undefined
  const source: MakeCopy = async (callback) => {
    const copy: unknown = await create.call(client.constructor, {
      ...config,
      lazyConnect: false,
      pubsubSubscriptions: { channelsAndPatterns: {}, callback },
    })
    if (!canSubscribe(copy, cluster)) throw new TypeError('GLIDE made a client that cannot subscribe')
    return copy
  }
  return new ResilientSubscriber({
    place: () => Promise.resolve({ name: '', source }),
    open: (make, events) => new GlideLine(make, cluster, events),
  })
}

function canSubscribe(value: unknown, cluster: boolean): value is GlideCopy {
  const names = cluster
    ? ['ssubscribe', 'sunsubscribe', 'sunsubscribeLazy']
    : ['subscribe', 'unsubscribe', 'unsubscribeLazy']
  return hasMethods(value, ...names)
}

/** How long GLIDE waits for the server's confirmation: more than a round trip, less than the line's own patience. */
const CONFIRM_MS = 4000
/** GLIDE reconnects without a word. So often its connection is asked for its id; a lost wake-up is late by so much. */
const HEARTBEAT_MS = 1000

class GlideLine implements Line {
  readonly ready: Promise<void>
  readonly #copy: Promise<GlideCopy>
  readonly #cluster: boolean
  readonly #events: LineEvents
  #heartbeat: Timer | undefined
  #closed = false

  constructor(make: MakeCopy, cluster: boolean, events: LineEvents) {
    this.#cluster = cluster
    this.#events = events
    this.#copy = make((message) => {
      const channel = plain(property(message, 'channel'))
      // Closed, GLIDE stays connected for some seconds, and would tell twice what the next line tells.
      if (typeof channel === 'string' && !this.#closed)
        events.message(channel, String(plain(property(message, 'message'))))
    })
    this.ready = this.#watch()
  }

  async subscribe(channel: string): Promise<void> {
    const copy = await this.#copy
    await (this.#cluster ? copy.ssubscribe([channel], CONFIRM_MS) : copy.subscribe([channel], CONFIRM_MS))
  }

  async unsubscribe(channel: string): Promise<void> {
    const copy = await this.#copy
    await (this.#cluster ? copy.sunsubscribe([channel], CONFIRM_MS) : copy.unsubscribe([channel], CONFIRM_MS))
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#heartbeat?.cancel()
    void this.#end()
  }

  /** Closed with subscriptions, GLIDE would try to have them back and print an error. */
  async #end(): Promise<void> {
    const copy = await this.#copy.catch(() => undefined)
    const over = this.#cluster ? copy?.sunsubscribeLazy(null) : copy?.unsubscribeLazy(null)
    await over?.catch(() => undefined)
    copy?.close()
  }

  async #watch(): Promise<void> {
    const copy = await this.#copy
    const before = await this.#identity(copy)
    if (this.#closed) throw new Error('the subscriber is closed')
    this.#beat(copy, before)
  }

  #beat(copy: GlideCopy, before: string): void {
    const ask = async (): Promise<void> => {
      const now = await this.#identity(copy).catch(() => undefined)
      if (now !== before) this.#events.down()
      else if (!this.#closed) this.#beat(copy, before)
    }
    this.#heartbeat = systemClock.timer(() => void ask(), HEARTBEAT_MS, true)
  }

  /** The id of the connection; on a Cluster of each of them, with the epoch, which rises when a slot changes hands. */
  async #identity(copy: GlideCopy): Promise<string> {
    if (!this.#cluster) return JSON.stringify(await copy.customCommand(['CLIENT', 'ID']))
    const options = { route: 'allPrimaries', decoder: DECODER_STRING }
    const commands = [
      ['CLIENT', 'ID'],
      ['CLUSTER', 'INFO'],
    ]
    const replies = await Promise.all(commands.map((command) => copy.customCommand(command, options)))
    return replies.flatMap(perNode).sort().join()
  }
}

/** GLIDE answers for several nodes with a list of { key, value }, in any order. */
function perNode(reply: unknown): string[] {
  return (Array.isArray(reply) ? reply : []).map((entry: unknown) => {
    const value = text(entry, 'value') ?? ''
    return `${text(entry, 'key')} ${/cluster_my_epoch:\d+/.exec(value)?.[0] ?? value}`
  })
}

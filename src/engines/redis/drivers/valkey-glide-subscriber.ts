import type { RedisClient } from '../client.ts'
import { hasMethods, property, text } from '../../shared/shape.ts'
import { unref } from './expected.ts'
import { ofOneServer, type ConnectionEvents } from './subscriber.ts'
import { plain } from './reply.ts'
import { DECODER_STRING, type GlideClient } from './valkey-glide-types.ts'
import type { SubscriberConnection } from './subscriber-connection.ts'

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
 * GLIDE's clients cannot be copied, but keep their configuration, from which their class makes another client. Without a
 * configuration, or where GLIDE is too old to subscribe on a running connection, there is no subscriber.
 */
export function glideSubscriber(client: GlideClient, cluster: boolean): RedisClient['subscriber'] | undefined {
  const config = property(client, 'config')
  const create = property(client.constructor, 'createClient')
  if (!canSubscribe(client, cluster) || typeof config !== 'object' || typeof create !== 'function') return undefined
  const make: MakeCopy = async (callback) => {
    const copy: unknown = await create.call(client.constructor, {
      ...config,
      lazyConnect: false,
      pubsubSubscriptions: { channelsAndPatterns: {}, callback },
    })
    if (!canSubscribe(copy, cluster)) throw new TypeError('GLIDE made a client that cannot subscribe')
    return copy
  }
  return ofOneServer((events) => new GlideConnection(make, cluster, events))
}

function canSubscribe(value: unknown, cluster: boolean): value is GlideCopy {
  const names = cluster
    ? ['ssubscribe', 'sunsubscribe', 'sunsubscribeLazy']
    : ['subscribe', 'unsubscribe', 'unsubscribeLazy']
  return hasMethods(value, ...names)
}

/** How long GLIDE waits for the server's confirmation: more than a round trip, less than we wait for GLIDE. */
const CONFIRM_MS = 4000

class GlideConnection implements SubscriberConnection {
  readonly ready: Promise<void>
  readonly #copy: Promise<GlideCopy>
  readonly #cluster: boolean
  readonly #events: ConnectionEvents
  #identity = ''
  #closed = false

  constructor(make: MakeCopy, cluster: boolean, events: ConnectionEvents) {
    this.#cluster = cluster
    this.#events = events
    this.#copy = make((message) => {
      const channel = plain(property(message, 'channel'))
      // After close(), GLIDE stays connected for some seconds, and would pass on messages that the next connection passes on, too.
      if (typeof channel === 'string' && !this.#closed)
        events.message(channel, String(plain(property(message, 'message'))))
    })
    this.ready = this.#connect()
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
    void this.#end()
  }

  /** If it were closed with subscriptions, GLIDE would try to restore them and print an error. */
  async #end(): Promise<void> {
    const copy = await this.#copy.catch(() => undefined)
    const over = this.#cluster ? copy?.sunsubscribeLazy(null) : copy?.unsubscribeLazy(null)
    await over?.catch(() => undefined)
    copy?.close()
  }

  /** GLIDE reconnects silently: its subscriptions are there again, and messages in between are lost. */
  async prove(): Promise<void> {
    const now = await identityOf(await this.#copy, this.#cluster).catch(() => undefined)
    if (now !== this.#identity) this.#events.down()
  }

  async #connect(): Promise<void> {
    const copy = await this.#copy
    unref(property(copy, 'socket'))
    this.#identity = await identityOf(copy, this.#cluster)
    if (this.#closed) throw new Error('the subscriber is closed')
  }
}

/** The id of the connection; on a Cluster of each of them, with the epoch, which rises when a slot changes hands. */
async function identityOf(copy: GlideCopy, cluster: boolean): Promise<string> {
  if (!cluster) return JSON.stringify(await copy.customCommand(['CLIENT', 'ID']))
  const options = { route: 'allPrimaries', decoder: DECODER_STRING }
  const commands = [
    ['CLIENT', 'ID'],
    ['CLUSTER', 'INFO'],
  ]
  const replies = await Promise.all(commands.map((command) => copy.customCommand(command, options)))
  return replies.flatMap(perNode).sort().join()
}

/** GLIDE returns the answers of several nodes as a list of { key, value }, in any order. */
function perNode(reply: unknown): string[] {
  return (Array.isArray(reply) ? reply : []).map((entry: unknown) => {
    const value = text(entry, 'value') ?? ''
    return `${text(entry, 'key')} ${/cluster_my_epoch:\d+/.exec(value)?.[0] ?? value}`
  })
}

import type { Subscriber } from '../client.ts'
import { addressOf, masterOf, type IoredisClient, type IoredisCluster } from './ioredis-send.ts'
import { ResilientSubscriber, type Line, type LineEvents } from './lines.ts'

export function ioredisSubscriber(client: IoredisClient): Subscriber {
  return new ResilientSubscriber({
    place: () => Promise.resolve({ name: '', source: client }),
    open: (source, events) => openLine(source, 'plain', events),
  })
}

/**
 * On a Cluster releases are told by sharded channels, on a connection to the channel's own master. The Cluster's own
 * `ssubscribe` is not used: without the option shardedSubscribers, which ioredis 6 alone has, it asks any one node.
 */
export function ioredisClusterSubscriber(client: IoredisCluster): Subscriber {
  return new ResilientSubscriber({
    async place(channel, stale) {
      const source = await masterOf(client, channel, stale)
      return { name: addressOf(source), source }
    },
    open: (source, events) => openLine(source, 'sharded', events),
  })
}

/** The copy connects when it is told to, and never again by itself. */
const OVERRIDE = {
  lazyConnect: true,
  retryStrategy: null,
  sentinelRetryStrategy: null,
  reconnectOnError: null,
  autoResubscribe: false,
  enableOfflineQueue: true,
  enableAutoPipelining: false,
  commandTimeout: undefined,
  maxRetriesPerRequest: null,
}

function openLine(source: IoredisClient, kind: 'plain' | 'sharded', events: LineEvents): Line {
  const copy = source.duplicate(OVERRIDE)
  let cause: Error | undefined
  let closed = false
  copy.on('error', (error: Error) => {
    cause ??= error
    events.down()
  })
  copy.on('end', () => {
    closed = true
    events.down()
  })
  const ready = copy.connect().catch((error: unknown) => {
    // 'Connection is closed.' would hide why.
    throw cause ?? error
  })
  const close = (): void => {
    // On a connection that is closed already, disconnect() leaves a timer of two seconds behind.
    if (!closed) copy.disconnect()
    closed = true
  }
  if (kind === 'plain') {
    copy.on('message', (channel: string, message: string) => events.message(channel, message))
    const subscribe = (channel: string): Promise<unknown> => copy.subscribe(channel)
    return { ready, subscribe, unsubscribe: (channel) => copy.unsubscribe(channel), close }
  }
  copy.on('smessage', (channel: string, message: string) => events.message(channel, message))
  // The slot went to another node and the server ended the subscription. (Before ioredis 6 this is an error.)
  copy.on('moved', () => events.down())
  const subscribe = (channel: string): Promise<unknown> => copy.ssubscribe(channel)
  return { ready, subscribe, unsubscribe: (channel) => copy.sunsubscribe(channel), close }
}

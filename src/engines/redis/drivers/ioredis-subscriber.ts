import type { RedisClient } from '../client.ts'
import { property } from '../../shared/shape.ts'
import { withoutLogin } from './connection-errors.ts'
import { unref } from './expected.ts'
import { addressOf, masterOf, type IoredisClient, type IoredisCluster } from './ioredis-send.ts'
import { ofOneServer, resilient, type ConnectionEvents } from './subscriber.ts'
import type { SubscriberConnection } from './subscriber-connection.ts'

export function ioredisSubscriber(client: IoredisClient): RedisClient['subscriber'] {
  return ofOneServer((events) => openConnection(client, 'plain', events))
}

/**
 * On a Cluster releases are published on sharded channels, on a connection to the channel's own master. The Cluster's own
 * `ssubscribe` is not used: without the option shardedSubscribers, which only ioredis 6 has, it asks any one node.
 */
export function ioredisClusterSubscriber(client: IoredisCluster): RedisClient['subscriber'] {
  return resilient({
    async serverOf(channel, stale) {
      const source = await masterOf(client, channel, stale)
      return { name: addressOf(source), source }
    },
    open(source, events) {
      if (!canSubscribeSharded(source)) throw new Error('this version of ioredis has no sharded pub/sub')
      return openConnection(source, 'sharded', events)
    },
  })
}

/** Older versions send the command, and then ignore the messages. */
function canSubscribeSharded(client: IoredisClient): boolean {
  const command = property(client.constructor, 'Command')
  const check = property(command, 'checkFlag')
  return typeof check !== 'function' || check.call(command, 'ENTER_SUBSCRIBER_MODE', 'ssubscribe') === true
}

/** The copy connects when `connect()` is called, and never again by itself. */
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

function openConnection(
  source: IoredisClient,
  kind: 'plain' | 'sharded',
  events: ConnectionEvents,
): SubscriberConnection {
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
  // A process that waits has a client that keeps it alive; a connection that is no longer used must not.
  copy.on('connect', () => unref(property(copy, 'stream')))
  const ready = copy.connect().catch((error: unknown) => {
    // 'Connection is closed.' would hide why.
    throw withoutLogin(cause ?? error)
  })
  const close = (): void => {
    // On a connection that is closed already, disconnect() leaves a timer of two seconds behind.
    if (!closed) copy.disconnect()
    closed = true
  }
  // Allowed in subscriber mode, with RESP2 too.
  const prove = (): Promise<unknown> => copy.ping()
  if (kind === 'plain') {
    copy.on('message', (channel: string, message: string) => events.message(channel, message))
    const subscribe = (channel: string): Promise<unknown> => copy.subscribe(channel)
    return { ready, subscribe, unsubscribe: (channel) => copy.unsubscribe(channel), prove, close }
  }
  copy.on('smessage', (channel: string, message: string) => events.message(channel, message))
  // The slot went to another node and the server ended the subscription. (Before ioredis 6 this is an error.)
  copy.on('moved', () => events.down())
  const subscribe = (channel: string): Promise<unknown> => copy.ssubscribe(channel)
  return { ready, subscribe, unsubscribe: (channel) => copy.sunsubscribe(channel), prove, close }
}

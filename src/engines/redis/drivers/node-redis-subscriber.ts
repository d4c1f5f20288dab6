import type { RedisClient } from '../client.ts'
import { property, text } from '../../shared/shape.ts'
import { unref } from './expected.ts'
import { ofOneServer, resilient, type ConnectionEvents } from './subscriber.ts'
import {
  masterOf,
  OURS_ONLINE,
  type NodeRedisClient,
  type NodeRedisCluster,
  type NodeRedisCopy,
  type NodeRedisPool,
  type NodeRedisSentinel,
} from './node-redis-send.ts'
import type { SubscriberConnection } from './subscriber-connection.ts'

export function clientSubscriber(client: NodeRedisClient): RedisClient['subscriber'] {
  return ofOneServer((events) => openConnection(copyOf(client), 'plain', events))
}

/** A pool cannot be copied, a client of it can. */
export function poolSubscriber(pool: NodeRedisPool): RedisClient['subscriber'] {
  return resilient({
    serverOf: async () => ({ name: '', source: await pool.execute((client) => ({ client })) }),
    open: ({ client }, events) => openConnection(copyOf(client), 'plain', events),
  })
}

/** On a Cluster releases are published on sharded channels, on a connection to the channel's own master. */
export function clusterSubscriber(cluster: NodeRedisCluster): RedisClient['subscriber'] {
  return resilient({
    async serverOf(channel, stale) {
      const source = await masterOf(cluster, channel, stale)
      const socket = property(property(source, 'options'), 'socket')
      return { name: `${text(socket, 'host')}:${text(socket, 'port')}`, source }
    },
    open: (source, events) => openConnection(copyOf(source), 'sharded', events),
  })
}

/** A copy of the whole sentinel client, because only that can find the master; with one connection to it. */
export function sentinelSubscriber(sentinel: NodeRedisSentinel): RedisClient['subscriber'] {
  return ofOneServer((events) => {
    const copy = sentinel.duplicate({
      masterPoolSize: 1,
      replicaPoolSize: 0,
      reserveClient: false,
      maxCommandRediscovers: 0,
      clientSideCache: undefined,
    })
    const connection = openConnection(copy, 'plain', events)
    // Not before: the first master is such an event, too, and comes before the connection is up.
    connection.ready.then(
      () => copy.on('topology-change', () => events.down()),
      () => undefined,
    )
    let isClosed = false
    const close = (): void => {
      isClosed = true
      connection.close()
    }
    return { ...connection, prove: () => proofOfSentinel(copy, () => isClosed), close }
  })
}

/** A user that may listen for releases may subscribe to it; no resource has this channel. */
const PROOF_CHANNEL = 'ringfence:freed:proof'
const ignored = (): void => undefined

/**
 * A sentinel client subscribes on a connection that no other command reaches: a channel is subscribed and left again. Not when it is
 * closed by then: it would open another connection for that.
 */
async function proofOfSentinel(copy: NodeRedisCopy, isClosed: () => boolean): Promise<void> {
  await copy.subscribe(PROOF_CHANNEL, ignored)
  if (isClosed()) return
  await copy.unsubscribe(PROOF_CHANNEL, ignored)
}

function openConnection(
  copy: NodeRedisCopy,
  kind: 'plain' | 'sharded',
  events: ConnectionEvents,
): SubscriberConnection {
  copy.on('error', () => events.down())
  copy.on('end', () => events.down())
  // The slot went to another node and the server ended the subscription.
  copy.on('sharded-channel-moved', () => events.down())
  const heard = (message: string, channel: string): void => events.message(channel, message)
  // A process that waits has a client that keeps it alive; a connection that is no longer used must not.
  unref(copy)
  const ready = copy.connect()
  // Not at once: destroyed from within a listener, node-redis reads the same piece of input again, forever.
  const close = (): void => queueMicrotask(() => void destroy(copy))
  // Allowed in subscriber mode, with RESP2 too.
  const prove = (): Promise<unknown> => copy.sendCommand(['PING'], OURS_ONLINE)
  const [subscribe, unsubscribe] =
    kind === 'plain' ? (['subscribe', 'unsubscribe'] as const) : (['sSubscribe', 'sUnsubscribe'] as const)
  return {
    ready,
    subscribe: (channel) => copy[subscribe](channel, heard),
    // Without its listener, node-redis would forget a new subscription while the server's answer is on its way.
    unsubscribe: (channel) => copy[unsubscribe](channel, heard),
    prove,
    close,
  }
}

async function destroy(copy: NodeRedisCopy): Promise<void> {
  try {
    await copy.destroy()
  } catch {
    // Version 5 throws when there is nothing left to close.
  }
}

/** The copy does not reconnect by itself, may be silent for long, and shares no cache with the user's client: closing it would empty the cache. */
function copyOf(client: NodeRedisClient): NodeRedisCopy {
  const socket = property(property(client, 'options'), 'socket')
  return client.duplicate({
    socket: { ...(typeof socket === 'object' ? socket : {}), socketTimeout: undefined, reconnectStrategy: false },
    clientSideCache: undefined,
    emitInvalidate: undefined,
    commandsQueueMaxLength: undefined,
    disableOfflineQueue: undefined,
    readonly: undefined,
  })
}

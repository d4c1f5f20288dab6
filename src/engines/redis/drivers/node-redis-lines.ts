import type { Subscriber } from '../client.ts'
import { property, text } from './expected.ts'
import { ResilientSubscriber, type Line, type LineEvents } from './lines.ts'
import {
  masterOf,
  type NodeRedisClient,
  type NodeRedisCluster,
  type NodeRedisCopy,
  type NodeRedisPool,
  type NodeRedisSentinel,
} from './node-redis-send.ts'

export function clientSubscriber(client: NodeRedisClient): Subscriber {
  return new ResilientSubscriber({
    place: () => Promise.resolve({ name: '', source: client }),
    open: (source, events) => openLine(copyOf(source), 'plain', events),
  })
}

/** A pool can't be copied, a client of it can. */
export function poolSubscriber(pool: NodeRedisPool): Subscriber {
  return new ResilientSubscriber({
    place: async () => ({ name: '', source: await pool.execute((client) => ({ client })) }),
    open: ({ client }, events) => openLine(copyOf(client), 'plain', events),
  })
}

/** On a Cluster releases are told by sharded channels, on a connection to the channel's own master. */
export function clusterSubscriber(cluster: NodeRedisCluster): Subscriber {
  return new ResilientSubscriber({
    async place(channel, stale) {
      const source = await masterOf(cluster, channel, stale)
      const socket = property(property(source, 'options'), 'socket')
      return { name: `${text(socket, 'host')}:${text(socket, 'port')}`, source }
    },
    open: (source, events) => openLine(copyOf(source), 'sharded', events),
  })
}

/** A copy of the whole sentinel client, since it alone knows how to find the master; with one connection to it. */
export function sentinelSubscriber(sentinel: NodeRedisSentinel): Subscriber {
  return new ResilientSubscriber({
    place: () => Promise.resolve({ name: '', source: sentinel }),
    open(source, events) {
      const copy = source.duplicate({
        masterPoolSize: 1,
        replicaPoolSize: 0,
        reserveClient: false,
        maxCommandRediscovers: 0,
        clientSideCache: undefined,
      })
      const line = openLine(copy, 'plain', events)
      // Told of the first master too, before the connection is up.
      line.ready.then(
        () => copy.on('topology-change', () => events.down()),
        () => undefined,
      )
      return line
    },
  })
}

function openLine(copy: NodeRedisCopy, kind: 'plain' | 'sharded', events: LineEvents): Line {
  copy.on('error', () => events.down())
  copy.on('end', () => events.down())
  // The slot went to another node and the server ended the subscription.
  copy.on('sharded-channel-moved', () => events.down())
  const heard = (message: string, channel: string): void => events.message(channel, message)
  const ready = copy.connect()
  // Not at once: destroyed from within a listener, node-redis reads the same piece of input again, for ever.
  const close = (): void => queueMicrotask(() => void destroy(copy))
  return kind === 'plain'
    ? {
        ready,
        subscribe: (channel) => copy.subscribe(channel, heard),
        unsubscribe: (channel) => copy.unsubscribe(channel),
        close,
      }
    : {
        ready,
        subscribe: (channel) => copy.sSubscribe(channel, heard),
        unsubscribe: (channel) => copy.sUnsubscribe(channel),
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
    pingInterval: undefined,
    readonly: undefined,
  })
}

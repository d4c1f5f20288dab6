import type { RedisClient } from '../client.ts'
import { rememberErrors, troubleOf } from './connection-errors.ts'
import { hasMethods, property, text } from '../../shared/shape.ts'
import { describe } from './expected.ts'
import { clientSubscriber, clusterSubscriber, poolSubscriber, sentinelSubscriber } from './node-redis-subscriber.ts'
import {
  clientSender,
  clientSenderInPieces,
  clusterMasters,
  clusterSender,
  clusterTogether,
  sendOne,
  sendTogether,
  sentinelSender,
  sentinelTogether,
  type NodeRedisClient,
  type NodeRedisCluster,
  type NodeRedisPool,
  type NodeRedisSentinel,
} from './node-redis-send.ts'

type AnyNodeRedis = NodeRedisClient | NodeRedisPool | NodeRedisCluster | NodeRedisSentinel

/** Any client of node-redis, of any version and with any modules; what is used of it is checked when it is passed. */
export interface NodeRedisLike {
  readonly isOpen: boolean
  sendCommand(...args: never[]): unknown
  connect(...args: never[]): unknown
  destroy(...args: never[]): unknown
}

/** Wraps what `createClient`, `createClientPool`, `createCluster` or `createSentinel` of node-redis returned. */
export function nodeRedis(client: NodeRedisLike): RedisClient {
  if (!looksLikeNodeRedis(client)) {
    throw new TypeError(
      'nodeRedis(client): expected what createClient(), createClientPool(), createCluster() or createSentinel() of ' +
        `node-redis returns, got ${describe(client)}`,
    )
  }
  const refused = refusedOption(client)
  if (refused !== undefined) throw new TypeError(`nodeRedis(client): ${refused}`)
  if (isPool(client)) return adaptPool(client)
  if (isCluster(client)) return adaptCluster(client)
  if (isSentinel(client)) return adaptSentinel(client)
  return adaptClient(client)
}

export function looksLikeNodeRedis(value: unknown): value is AnyNodeRedis & NodeRedisLike {
  return hasMethods(value, 'sendCommand', 'connect', 'close', 'destroy', 'multi') && 'isOpen' in value
}

function isPool(client: AnyNodeRedis): client is NodeRedisPool {
  return hasMethods(client, 'execute') && 'totalClients' in client
}

function isCluster(client: AnyNodeRedis): client is NodeRedisCluster {
  return hasMethods(client, 'nodeClient') && 'masters' in client
}

function isSentinel(client: AnyNodeRedis): client is NodeRedisSentinel {
  return hasMethods(client, 'getMasterNode', 'getSentinelNode')
}

function adaptClient(client: NodeRedisClient): RedisClient {
  const label = serverLabel(property(client, 'options'))
  const run = clientSender(client)
  return {
    ...common(client),
    label,
    server: `${label}/${text(property(client, 'options'), 'database') ?? 0}`,
    run,
    send: clientSenderInPieces(client),
    runTogether: (commands) => sendTogether(client, commands),
    masters: () => Promise.resolve([{ label, run }]),
    subscriber: clientSubscriber(client),
  }
}

function adaptPool(pool: NodeRedisPool): RedisClient {
  // A pool hides its options; its clients do not.
  let address: string | undefined
  const execute = <T>(task: (client: NodeRedisClient) => Promise<T>): Promise<T> =>
    pool.execute((client) => {
      address ??= serverLabel(property(client, 'options'))
      return task(client)
    })
  const run = (command: readonly string[]): Promise<unknown> => execute((client) => sendOne(client, command))
  return {
    ...common(pool),
    get label() {
      return address === undefined ? 'pool' : `pool(${address})`
    },
    run,
    runTogether: (commands) => execute((client) => sendTogether(client, commands)),
    masters: async () => {
      await run(['PING'])
      return [{ label: address ?? 'pool', run }]
    },
    subscriber: poolSubscriber(pool),
  }
}

function adaptSentinel(sentinel: NodeRedisSentinel): RedisClient {
  const run = sentinelSender(sentinel)
  const label = (): string => {
    const master = sentinel.isOpen ? sentinel.getMasterNode() : undefined
    return master === undefined ? 'sentinel' : `sentinel(${master.host}:${master.port})`
  }
  return {
    ...common(sentinel),
    // The name of the master is not available, and its server changes.
    get label() {
      return label()
    },
    run,
    runTogether: (commands) => sentinelTogether(sentinel, commands),
    masters: () => Promise.resolve([{ label: label(), run }]),
    subscriber: sentinelSubscriber(sentinel),
  }
}

function adaptCluster(cluster: NodeRedisCluster): RedisClient {
  const roots = property(property(cluster, '_options'), 'rootNodes')
  return {
    ...common(cluster),
    label: `cluster(${Array.isArray(roots) ? roots.map(serverLabel).join(',') : ''})`,
    cluster: true,
    run: clusterSender(cluster),
    runTogether: (commands, key) => clusterTogether(cluster, commands, key),
    masters: () => Promise.resolve(clusterMasters(cluster)),
    subscriber: clusterSubscriber(cluster),
  }
}

function common(client: AnyNodeRedis): Pick<RedisClient, 'driver' | 'identity' | 'cluster' | 'unusable' | 'trouble'> {
  let opened = client.isOpen
  rememberErrors(client)
  return {
    driver: 'node-redis',
    identity: client,
    cluster: false,
    // A pool and a cluster do not say.
    trouble: () => (property(client, 'isReady') === false ? troubleOf(client, 'reconnecting') : undefined),
    unusable() {
      if (property(client, 'isClosing') === true) return 'it is being closed'
      if (client.isOpen) {
        opened = true
        return inSubscriberMode(client) ? SUBSCRIBER_MODE : undefined
      }
      // Only a single client counts its connections; of the others we know only what we have seen.
      return opened || Number(property(client, 'socketEpoch') ?? 0) > 0
        ? 'it is closed (close(), destroy(), or its reconnect strategy gave up)'
        : 'it was never connected: await client.connect() first'
    },
  }
}

const SUBSCRIBER_MODE = 'it is in subscriber mode and cannot run commands'

/** With RESP3, the default of version 6, a connection can subscribe and run commands. */
function inSubscriberMode(client: AnyNodeRedis): boolean {
  return property(client, 'isPubSubActive') === true && property(property(client, 'options'), 'RESP') === 2
}

/** Options under which a lock would silently be another lock than the one asked for. */
function refusedOption(client: AnyNodeRedis): string | undefined {
  if (property(client, '_keyPrefix')) {
    return (
      'its keyPrefix is for its own methods and would not reach the keys of locks: use the prefix option of the ' +
      'engine, and pass a client without keyPrefix'
    )
  }
  if (property(property(client, 'options'), 'readonly') === true) {
    return 'it reads from a replica (readonly), which cannot grant locks: pass a client of the master'
  }
  return inSubscriberMode(client) ? `${SUBSCRIBER_MODE}: pass client.duplicate(), connected` : undefined
}

/** Of a client's options, or of a root node's. A URL may hold a password, so only its host and port are taken. */
function serverLabel(options: unknown): string {
  const socket = property(options, 'socket')
  const url = text(options, 'url') ?? ''
  const from = URL.canParse(url) ? new URL(url) : undefined
  const host = text(socket, 'host') ?? (from?.hostname || 'localhost')
  const port = text(socket, 'port') ?? (from?.port || '6379')
  return text(socket, 'path') ?? `${host}:${port}`
}

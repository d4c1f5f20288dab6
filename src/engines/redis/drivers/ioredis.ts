import type { RedisClient } from '../client.ts'
import { rememberErrors, troubleOf } from './connection-errors.ts'
import { hasMethods, property, text } from '../../shared/shape.ts'
import { describe } from './expected.ts'
import { ioredisClusterSubscriber, ioredisSubscriber } from './ioredis-subscriber.ts'
import {
  addressOf,
  clusterMasters,
  clusterSender,
  pipelined,
  pipelinedOnCluster,
  sender,
  senderInPieces,
  type IoredisClient,
  type IoredisCluster,
} from './ioredis-send.ts'

/** A `Redis` or `Cluster` of ioredis or iovalkey, of any version; what is used of it is checked when it is passed. */
export interface IoredisLike {
  readonly status: string
  call(...args: never[]): unknown
  pipeline(...args: never[]): unknown
  duplicate(...args: never[]): unknown
}

/** Wraps an ioredis `Redis` (also one with sentinels) or `Cluster`. */
export function ioredis(client: IoredisLike): RedisClient {
  return adapt(client, 'ioredis')
}

/** Wraps an iovalkey `Redis` (also one with sentinels) or `Cluster`. */
export function iovalkey(client: IoredisLike): RedisClient {
  return adapt(client, 'iovalkey')
}

export function looksLikeIoredis(value: unknown): value is (IoredisClient | IoredisCluster) & IoredisLike {
  return (
    hasMethods(value, 'call', 'callBuffer', 'pipeline', 'duplicate', 'disconnect', 'on') &&
    typeof property(value, 'status') === 'string' &&
    typeof property(value, 'options') === 'object'
  )
}

function adapt(client: unknown, driver: 'ioredis' | 'iovalkey'): RedisClient {
  if (!looksLikeIoredis(client)) {
    throw new TypeError(`${driver}(client): expected a Redis or Cluster of ${driver}, got ${describe(client)}`)
  }
  const refused = refusedOption(client)
  if (refused !== undefined) throw new TypeError(`${driver}(client): ${refused}`)
  rememberErrors(client)
  const common = { driver, identity: client, unusable: () => unusable(client), trouble: () => trouble(client) }
  if (isCluster(client)) {
    return {
      ...common,
      label: clusterLabel(client),
      cluster: true,
      run: clusterSender(client),
      runTogether: (commands, key) => pipelinedOnCluster(client, commands, key),
      masters: () => clusterMasters(client),
      subscriber: ioredisClusterSubscriber(client),
    }
  }
  const run = sender(client)
  const send = senderInPieces(client)
  const hasSentinels = Boolean(property(client.options, 'sentinels'))
  const label = hasSentinels ? `sentinel(${text(client.options, 'name')})` : addressOf(client)
  return {
    ...common,
    ...(send === undefined ? {} : { send }),
    label,
    server: hasSentinels ? undefined : `${label}/${text(client.options, 'db') ?? 0}`,
    cluster: false,
    run,
    runTogether: (commands) => pipelined(client, commands),
    masters: () => Promise.resolve([{ label, run }]),
    subscriber: ioredisSubscriber(client),
  }
}

function isCluster(client: IoredisClient | IoredisCluster): client is IoredisCluster {
  return property(client, 'isCluster') === true
}

/** Options under which a lock would silently be another lock than the one asked for. Each has a remedy of one line. */
function refusedOption(client: IoredisClient | IoredisCluster): string | undefined {
  const option = (name: string): unknown => property(client.options, name)
  const copy = isCluster(client) ? 'client.duplicate([], ' : 'client.duplicate('
  if (option('keyPrefix')) {
    return (
      'its keyPrefix would change the keys of locks but not what is published and scanned: use the prefix option of ' +
      `the engine, and pass ${copy}{ keyPrefix: '' })`
    )
  }
  if (option('readOnly') === true || option('role') === 'slave') {
    return 'it reads from a replica (readOnly, or role slave), which cannot grant locks: pass a client of the master'
  }
  if ((option('scaleReads') ?? 'master') !== 'master') {
    return `its scaleReads would ask replicas, which lag behind: pass ${copy}{ scaleReads: 'master' })`
  }
  if (option('monitor') === true) return 'it is a monitor connection: pass an ordinary client'
  return inSubscriberMode(client) ? `it ${SUBSCRIBER_MODE}: pass client.duplicate()` : undefined
}

const SUBSCRIBER_MODE = 'is in subscriber mode and cannot run commands'

/** With RESP3, the default of ioredis 6, a connection can subscribe and run commands; its mode then stays normal. */
function inSubscriberMode(client: IoredisClient | IoredisCluster): boolean {
  return !isCluster(client) && client.mode === 'subscriber'
}

function unusable(client: IoredisClient | IoredisCluster): string | undefined {
  if (client.status === 'disconnecting') return 'it is being closed'
  // A Cluster goes on from 'end' to 'close' and stays there, keeping all commands for a connection that never comes.
  const byUser = client.status === 'close' && property(client, 'manuallyClosing') === true
  if (client.status === 'end' || byUser) return 'it is closed (quit(), disconnect(), or its retry strategy gave up)'
  return inSubscriberMode(client) ? `it ${SUBSCRIBER_MODE}` : undefined
}

function trouble(client: IoredisClient | IoredisCluster): string | undefined {
  return client.status === 'ready' ? undefined : troubleOf(client, STATES[client.status] ?? client.status)
}

/** In words, where ioredis has only one. */
const STATES: Record<string, string> = {
  wait: 'not connected yet',
  connect: 'connected, but not ready',
  close: 'reconnecting',
  end: 'closed',
}

function clusterLabel(client: IoredisCluster): string {
  const nodes = property(client, 'startupNodes')
  return `cluster(${Array.isArray(nodes) ? nodes.map(startupLabel).join(',') : ''})`
}

/** A startup node is a port, an object, or a URL, whose password must not be shown. */
function startupLabel(node: unknown): string {
  if (typeof node === 'number') return addressOf({ options: { port: node } })
  if (typeof node !== 'string') return addressOf({ options: Object(node) })
  if (!URL.canParse(node)) return /^\d+$/.test(node) ? `localhost:${node}` : '?'
  const { hostname, port } = new URL(node)
  return addressOf({ options: { host: hostname || undefined, port: port || undefined } })
}

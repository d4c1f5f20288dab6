import { Decoder, GlideClient, GlideClusterClient, Logger } from '@valkey/valkey-glide'
import { Cluster, Redis } from 'ioredis'
import { Cluster as ValkeyCluster, Redis as Valkey } from 'iovalkey'
import { createClient, createClientPool, createCluster, createSentinel, RESP_TYPES } from 'redis'
import { ioredis, iovalkey } from '../../../src/engines/redis/drivers/ioredis.ts'
import { nodeRedis } from '../../../src/engines/redis/drivers/node-redis.ts'
import { valkeyGlide } from '../../../src/engines/redis/drivers/valkey-glide.ts'
import type { RedisClient } from '../../../src/engines/redis/client.ts'

export interface Address {
  readonly host: string
  readonly port: number
}

/** A server's handle has more, which no driver should see. */
export function addressOf({ host, port }: Address): Address {
  return { host, port }
}

export interface Connected {
  readonly client: RedisClient
  /** Closes the user's own client. */
  readonly close: () => unknown
}

// GLIDE prints every error reply of a server, which these tests provoke.
Logger.init('off')

const quiet = (): void => undefined

/** Every kind of client for one server, also with the options that change what replies look like. */
export const SINGLE: Record<string, (server: Address) => Promise<Connected>> = {
  ioredis: async (server) => withIoredis(new Redis(server)),
  'ioredis, RESP2, numbers as strings, automatic pipelines': async (server) =>
    withIoredis(new Redis({ ...server, protocol: 2, stringNumbers: true, enableAutoPipelining: true })),
  'ioredis, shapes of RESP3, not connected yet': async (server) =>
    withIoredis(new Redis({ ...server, replyMapping: 'resp3', lazyConnect: true })),
  'ioredis without offline queue': async (server) => {
    const redis = new Redis({ ...server, enableOfflineQueue: false, lazyConnect: true, maxRetriesPerRequest: 0 })
    await redis.connect()
    return withIoredis(redis)
  },
  'ioredis 4.31': async (server) => {
    const { default: Redis4 } = await import('ioredis4')
    return withIoredis(new Redis4(server))
  },
  iovalkey: async (server) => {
    const valkey = new Valkey(server).on('error', quiet)
    return { client: iovalkey(valkey), close: () => valkey.disconnect() }
  },
  'node-redis': async (server) => {
    const client = await createClient({ socket: server }).on('error', quiet).connect()
    return { client: nodeRedis(client), close: () => client.destroy() }
  },
  'node-redis, RESP2, by URL, without offline queue': async ({ host, port }) => {
    const client = createClient({ url: `redis://${host}:${port}`, RESP: 2, disableOfflineQueue: true })
    await client.on('error', quiet).connect()
    return { client: nodeRedis(client), close: () => client.destroy() }
  },
  'node-redis, replies as Buffers and strings': async (server) => {
    const typeMapping = { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.NUMBER]: String, [RESP_TYPES.MAP]: Map }
    const client = createClient({ socket: server, commandOptions: { typeMapping } })
    await client.on('error', quiet).connect()
    return { client: nodeRedis(client), close: () => client.destroy() }
  },
  'node-redis pool': async (server) => {
    const pool = createClientPool({ socket: server }, { minimum: 2 }).on('error', quiet)
    await pool.connect()
    return { client: nodeRedis(pool), close: () => pool.destroy() }
  },
  // Once is enough of it: it keeps the connection of a closed client for three seconds.
  GLIDE: async (server) =>
    withGlide(await GlideClient.createClient({ addresses: [server], defaultDecoder: Decoder.Bytes })),
}

export const CLUSTER: Record<string, (nodes: readonly Address[]) => Promise<Connected>> = {
  ioredis: async (nodes) => {
    const cluster = new Cluster([...nodes]).on('error', quiet)
    return { client: ioredis(cluster), close: () => cluster.disconnect() }
  },
  'ioredis, automatic pipelines, not connected yet': async (nodes) => {
    const cluster = new Cluster([...nodes], { enableAutoPipelining: true, lazyConnect: true }).on('error', quiet)
    return { client: ioredis(cluster), close: () => cluster.disconnect() }
  },
  iovalkey: async (nodes) => {
    const cluster = new ValkeyCluster([...nodes]).on('error', quiet)
    return { client: iovalkey(cluster), close: () => cluster.disconnect() }
  },
  'node-redis': async (nodes) => {
    const cluster = createCluster({ rootNodes: nodes.map((socket) => ({ socket })) })
    await cluster.on('error', quiet).connect()
    return { client: nodeRedis(cluster), close: () => cluster.destroy() }
  },
  GLIDE: async (nodes) => withGlide(await GlideClusterClient.createClient({ addresses: [...nodes] })),
}

export const SENTINEL: Record<string, (name: string, sentinels: readonly Address[]) => Promise<Connected>> = {
  ioredis: async (name, sentinels) => withIoredis(new Redis({ name, sentinels: [...sentinels] })),
  iovalkey: async (name, sentinels) => {
    const valkey = new Valkey({ name, sentinels: [...sentinels] }).on('error', quiet)
    return { client: iovalkey(valkey), close: () => valkey.disconnect() }
  },
  'node-redis': async (name, sentinels) => {
    const sentinel = createSentinel({ name, sentinelRootNodes: [...sentinels] }).on('error', quiet)
    await sentinel.connect()
    return { client: nodeRedis(sentinel), close: () => sentinel.destroy() }
  },
}

function withIoredis(redis: Redis): Connected {
  redis.on('error', quiet)
  return { client: ioredis(redis), close: () => redis.disconnect() }
}

function withGlide(client: GlideClient | GlideClusterClient): Connected {
  return { client: valkeyGlide(client), close: () => client.close() }
}

import { setTimeout as pause } from 'node:timers/promises'
import { redis } from '../../../dist/engines/redis/index.cjs'

const quiet = () => undefined

/** What a driver does not do by itself: it goes on until a first node has told it of the others. */
async function patiently(make) {
  for (;;) {
    try {
      return await make()
    } catch {
      await pause(50)
    }
  }
}

const drivers = {
  ioredis: async (nodes) => {
    const { Cluster } = await import('ioredis')
    const client = new Cluster(nodes).on('error', quiet)
    return { client, end: () => client.disconnect() }
  },
  iovalkey: async (nodes) => {
    const { Cluster } = await import('iovalkey')
    const client = new Cluster(nodes).on('error', quiet)
    return { client, end: () => client.disconnect() }
  },
  'node-redis': async (nodes) => {
    const { createCluster } = await import('redis')
    const rootNodes = nodes.map((socket) => ({ socket }))
    const client = await patiently(() => createCluster({ rootNodes }).on('error', quiet).connect())
    return { client, end: () => client.destroy() }
  },
  glide: async (nodes) => {
    const { GlideClusterClient, Logger } = await import('@valkey/valkey-glide')
    Logger.init('off')
    const client = await patiently(() => GlideClusterClient.createClient({ addresses: nodes }))
    return { client, end: () => client.close() }
  },
}

/** The engine of this process on the Cluster that has a node on each of RINGFENCE_PORTS. */
export async function connect() {
  const nodes = process.env.RINGFENCE_PORTS.split(',').map((port) => ({ host: '127.0.0.1', port: Number(port) }))
  const { client, end } = await drivers[process.env.RINGFENCE_DRIVER](nodes)
  const engine = redis(client)
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().finally(end) })
}

import { setTimeout as pause } from 'node:timers/promises'
import { redlock } from '../../../dist/engines/redis/index.cjs'

const quiet = () => undefined

/** GLIDE makes no client of a server that is away. */
async function glideClient(port) {
  const { GlideClient, Logger } = await import('@valkey/valkey-glide')
  Logger.init('off')
  for (;;) {
    try {
      return await GlideClient.createClient({ addresses: [{ host: '127.0.0.1', port }] })
    } catch {
      await pause(50)
    }
  }
}

// Each loads its own driver only: ten processes that start at once would otherwise load both.
export const drivers = {
  ioredis: async (ports) => {
    const { Redis } = await import('ioredis')
    const clients = ports.map((port) => new Redis({ host: '127.0.0.1', port }).on('error', quiet))
    return { clients, end: () => clients.forEach((client) => client.disconnect()) }
  },
  iovalkey: async (ports) => {
    const { Redis } = await import('iovalkey')
    const clients = ports.map((port) => new Redis({ host: '127.0.0.1', port }).on('error', quiet))
    return { clients, end: () => clients.forEach((client) => client.disconnect()) }
  },
  glide: async (ports) => {
    const clients = await Promise.all(ports.map(glideClient))
    return { clients, end: () => clients.forEach((client) => client.close()) }
  },
  'node-redis': async (ports) => {
    const { createClient } = await import('redis')
    const clients = ports.map((port) => createClient({ socket: { host: '127.0.0.1', port } }).on('error', quiet))
    // They go on trying by themselves; a node that is down must not keep the others waiting.
    for (const client of clients) client.connect().catch(quiet)
    return { clients, end: () => clients.forEach((client) => client.destroy()) }
  },
}

/** The engine of this process on the nodes of RINGFENCE_PORTS, by the driver of RINGFENCE_DRIVER. */
export async function connect() {
  const { RINGFENCE_PORTS, RINGFENCE_DRIVER = 'ioredis', RINGFENCE_REDLOCK_OPTIONS = '{}' } = process.env
  const { clients, end } = await drivers[RINGFENCE_DRIVER](RINGFENCE_PORTS.split(',').map(Number))
  const engine = redlock(clients, JSON.parse(RINGFENCE_REDLOCK_OPTIONS))
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().finally(end) })
}

import { redis } from '../../../dist/engines/redis/index.cjs'

const quiet = () => undefined
/** Of ioredis: otherwise it stays with a primary that is frozen (docs/engines/redis.md). */
const SOCKET_TIMEOUT_MS = 2000

const drivers = {
  ioredis: async (group) => {
    const { Redis } = await import('ioredis')
    const client = new Redis({ ...group, socketTimeout: SOCKET_TIMEOUT_MS }).on('error', quiet)
    return { client, end: () => client.disconnect() }
  },
  iovalkey: async (group) => {
    const { Redis } = await import('iovalkey')
    const client = new Redis({ ...group, socketTimeout: SOCKET_TIMEOUT_MS }).on('error', quiet)
    return { client, end: () => client.disconnect() }
  },
  'node-redis': async ({ name, sentinels }) => {
    const { createSentinel } = await import('redis')
    const client = createSentinel({ name, sentinelRootNodes: sentinels }).on('error', quiet)
    await client.connect()
    return { client, end: () => client.destroy() }
  },
}

/** The engine of this process behind the sentinels of RINGFENCE_PORTS. */
export async function connect() {
  const { RINGFENCE_PORTS, RINGFENCE_NAME, RINGFENCE_DRIVER } = process.env
  const sentinels = RINGFENCE_PORTS.split(',').map((port) => ({ host: '127.0.0.1', port: Number(port) }))
  const { client, end } = await drivers[RINGFENCE_DRIVER]({ name: RINGFENCE_NAME, sentinels })
  const engine = redis(client, { replicas: 1, within: '500ms' })
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().finally(end) })
}

import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { redlock } from '../../../dist/engines/redis/index.js'

const quiet = () => undefined

const drivers = {
  ioredis: (port) => {
    const client = new Redis({ host: '127.0.0.1', port }).on('error', quiet)
    return { client, end: () => client.disconnect() }
  },
  'node-redis': (port) => {
    const client = createClient({ socket: { host: '127.0.0.1', port } }).on('error', quiet)
    // Goes on trying by itself; a node that is down must not keep the others waiting.
    client.connect().catch(quiet)
    return { client, end: () => client.destroy() }
  },
}

/** The engine of this process on the nodes of RINGFENCE_PORTS, by the driver of RINGFENCE_DRIVER. */
export async function connect() {
  const { RINGFENCE_PORTS, RINGFENCE_DRIVER = 'ioredis', RINGFENCE_REDLOCK_OPTIONS = '{}' } = process.env
  const opened = RINGFENCE_PORTS.split(',').map((port) => drivers[RINGFENCE_DRIVER](Number(port)))
  const engine = redlock(
    opened.map(({ client }) => client),
    JSON.parse(RINGFENCE_REDLOCK_OPTIONS),
  )
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().finally(() => opened.forEach(({ end }) => end())) })
}

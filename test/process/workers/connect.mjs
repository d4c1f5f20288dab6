import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { createLocks } from '../../../dist/index.cjs'
import { redlock } from '../../../dist/engines/redis/index.cjs'

const quiet = () => undefined

const drivers = {
  ioredis: async (port) => new Redis({ host: '127.0.0.1', port }).on('error', quiet),
  'node-redis': (port) =>
    createClient({ socket: { host: '127.0.0.1', port } })
      .on('error', quiet)
      .connect(),
}

/** The locks of this process on the nodes of RINGFENCE_PORTS, by the driver of RINGFENCE_DRIVER. */
export async function connectLocks(options) {
  const ports = process.env.RINGFENCE_PORTS.split(',').map(Number)
  const clients = await Promise.all(ports.map(drivers[process.env.RINGFENCE_DRIVER]))
  return createLocks(redlock(clients, { requestTimeout: '1s' }), options)
}

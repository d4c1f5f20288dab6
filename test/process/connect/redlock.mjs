import { Redis } from 'ioredis'
import { redlock } from '../../../dist/engines/redis/index.js'

/** The engine of this process on the nodes of RINGFENCE_PORTS. */
export async function connect() {
  const ports = process.env.RINGFENCE_PORTS.split(',').map(Number)
  const clients = ports.map((port) => new Redis({ host: '127.0.0.1', port }).on('error', () => undefined))
  const engine = redlock(clients)
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().finally(() => clients.forEach((client) => client.disconnect())) })
}

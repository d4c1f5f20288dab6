import { Redis } from 'ioredis'
import { redis } from '../../../dist/engines/redis/index.js'

/** The engine of this process on the server of RINGFENCE_PORT. */
export async function connect() {
  const client = new Redis({ host: '127.0.0.1', port: Number(process.env.RINGFENCE_PORT) }).on('error', () => undefined)
  const engine = redis(client)
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().finally(() => client.disconnect()) })
}

import { redis } from '../../../dist/engines/redis/index.cjs'
import { drivers } from './redlock.mjs'

/** The engine of this process on the server of RINGFENCE_PORT, by the driver of RINGFENCE_DRIVER. */
export async function connect() {
  const { RINGFENCE_PORT, RINGFENCE_DRIVER = 'ioredis' } = process.env
  const { clients, end } = await drivers[RINGFENCE_DRIVER]([Number(RINGFENCE_PORT)])
  const engine = redis(clients[0])
  const close = engine.close.bind(engine)
  return Object.assign(engine, { close: () => close().finally(end) })
}

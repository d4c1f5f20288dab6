import { randomBytes } from 'node:crypto'
import { GlideClient } from '@valkey/valkey-glide'
import { Redis } from 'ioredis'
import { Redis as Valkey } from 'iovalkey'
import { createClient, createClientPool } from 'redis'
import { createLocks } from '../../../dist/index.cjs'
import { ioredis, iovalkey, nodeRedis, redis, valkeyGlide } from '../../../dist/engines/redis/index.cjs'

// Waits once for what another process holds, and closes its own client alone: what the locks have opened must not keep the
// process alive. Neither must a subscription that is in use, whose connection is never idle.
const address = { host: '127.0.0.1', port: Number(process.env.RINGFENCE_PORT) }

const DRIVERS = {
  ioredis: async () => {
    const client = new Redis(address)
    return { client, wrap: ioredis, close: () => client.quit() }
  },
  iovalkey: async () => {
    const client = new Valkey(address)
    return { client, wrap: iovalkey, close: () => client.quit() }
  },
  'node-redis': async () => {
    const client = await createClient({ socket: address }).connect()
    return { client, wrap: nodeRedis, close: () => client.close() }
  },
  'node-redis pool': async () => {
    const client = createClientPool({ socket: address })
    await client.connect()
    return { client, wrap: nodeRedis, close: () => client.close() }
  },
  GLIDE: async () => {
    const client = await GlideClient.createClient({ addresses: [address] })
    return { client, wrap: valkeyGlide, close: () => client.close() }
  },
}

const clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  timer(callback, delayMs, background = false) {
    const timer = setTimeout(() => callback(), delayMs)
    if (background) timer.unref()
    return { cancel: () => clearTimeout(timer) }
  },
}
const random = { id: () => randomBytes(16).toString('hex'), fraction: () => Math.random() }

const { client, wrap, close } = await DRIVERS[process.env.DRIVER]()
const locks = createLocks(redis(client))
const lease = await locks.acquire('order', { wait: '20s' })
await lease.release()
await wrap(client)
  .subscriber(clock, random)
  .subscribe('in use', () => undefined)
await close()
process.send({ type: 'done' })

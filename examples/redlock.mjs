// A quorum of independent masters, with two different drivers:
// REDIS_URLS=redis://a:6379,redis://b:6379,redis://c:6379 node examples/redlock.mjs
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { createLocks } from 'ringfence'
import { redlock } from 'ringfence/redis'

const [first, ...others] = process.env.REDIS_URLS.split(',')
const nodeRedis = createClient({ url: first })
nodeRedis.on('error', (error) => console.error(error.message))
await nodeRedis.connect()
const ioredis = others.map((url) => new Redis(url))

const locks = createLocks(redlock([nodeRedis, ...ioredis]), { ttl: '10s', wait: '5s' })
const transfer = async (lease) => {
  // One token for both accounts; pass it to the store, which rejects an older one.
  console.log(`holding ${lease.resources.join(' and ')} with one token: ${typeof lease.token}`)
  return 'done'
}
console.log(await locks.using(['account:1', 'account:2'], transfer))

await locks.close()
nodeRedis.destroy()
for (const client of ioredis) client.disconnect()

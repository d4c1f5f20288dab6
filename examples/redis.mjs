// One Redis: REDIS_URL=redis://127.0.0.1:6379 node examples/redis.mjs
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const locks = createLocks(redis(client), { ttl: '10s' })

const lease = await locks.tryAcquire('report:daily')
if (lease === null) {
  console.log('someone else is at it')
} else {
  console.log(`mine: token ${lease.token > 0n}, valid for ${lease.remaining() > 9000}`)
  console.log('another try gives', await locks.tryAcquire('report:daily'))
  lease.assertHeld() // right before a side effect
  console.log(`released while still mine: ${await lease.release()}`)
}
await locks.close() // your client stays open
client.disconnect()

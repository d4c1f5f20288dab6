// The store refuses a holder that was paused for too long: REDIS_URL=redis://127.0.0.1:6379 node examples/guard.mjs
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redisGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const locks = createLocks(redis(client), { wait: '5s' })
const guard = redisGuard(client)

const paused = await locks.acquire('report', { ttl: '100ms', renew: false })
// … its process is stopped here for longer than the lease. Meanwhile:
const next = await locks.acquire('report')
await guard.enter(next) // before the first read: from here on, older holders are refused
await guard.set(next, '{report}:text', 'new')
// … and now it goes on, as if nothing had happened.
await guard.set(paused, '{report}:text', 'old').catch((error) => console.log(`refused: ${error.code}`))
console.log(`the report is ${await client.get('{report}:text')}`)

await locks.close()
client.disconnect()

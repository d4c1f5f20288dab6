// One process of many leads, until it ends or is cut off: REDIS_URL=redis://127.0.0.1:6379 node examples/recipes/leader.mjs
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redisGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const locks = createLocks(redis(client), { ttl: '2s' }) // a leader that dies is followed by another one after 2 s at most
const guard = redisGuard(client)

const ending = new AbortController()
process.once('SIGTERM', () => ending.abort(new Error('told to end')))

try {
  await locks.elect('scheduler', { signal: ending.signal }, async (lease) => {
    await guard.enter(lease) // from here on, the store refuses the leader before
    console.log(`leading, token ${lease.token}`)
    for (let round = 1; !lease.signal.aborted; round++) {
      await guard.set(lease, '{scheduler}:round', String(round))
      await sleep(50, undefined, { signal: lease.signal }).catch(() => undefined)
    }
    // When this returns, somebody else may lead: finish here what must not go on beside the next leader.
    lease.signal.throwIfAborted()
  })
} catch (error) {
  if (error !== ending.signal.reason) throw error
  console.log('stepped down')
}
await locks.close()
client.disconnect()

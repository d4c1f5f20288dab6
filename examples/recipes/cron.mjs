// A job in the cron of every machine, which runs on one of them: REDIS_URL=redis://127.0.0.1:6379 node examples/recipes/cron.mjs
import { hostname } from 'node:os'
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const locks = createLocks(redis(client))

// Cron starts this at the same minute everywhere, give or take the clocks: 50 s is longer than they differ, and shorter than a minute.
const { ran } = await locks.once('tick', { atLeast: '50s', atMost: '10m', note: hostname() }, async (lease) => {
  await sendReminders({ signal: lease.signal })
})
console.log(ran ? 'ran here' : 'ran elsewhere')

await locks.close()
client.disconnect()

async function sendReminders({ signal }) {
  for (const customer of ['ada', 'bob']) {
    signal.throwIfAborted() // atMost is over, or the lease was lost: another machine may have begun
    await client.rpush('reminders', customer)
  }
}

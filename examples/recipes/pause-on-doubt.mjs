// Work that stops sending while nobody confirms its lease, and goes on after:
// REDIS_URL=redis://127.0.0.1:6379 node examples/recipes/pause-on-doubt.mjs
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const admin = new Redis(process.env.REDIS_URL)
const locks = createLocks(redis(client, { requestTimeout: '200ms' }), { ttl: '10s' })

await locks.using('newsletter', async (lease) => {
  for (const reader of ['ada', 'bob', 'cem']) {
    // The server stops answering before the second mail, for this demonstration.
    if (reader === 'bob') await outage(lease)
    const before = lease.state
    // Without doubt it resolves at once. In doubt it waits for a renewal that is proved, and rejects if the lease is lost.
    await lease.proved()
    console.log(`${reader}: the lease was ${before}, is ${lease.state}: sent with token ${lease.token > 0n}`)
  }
})

/** Writes are held back from now on, and go on as soon as the lease is in doubt. */
async function outage(lease) {
  await admin.client('PAUSE', 60_000, 'WRITE')
  const failed = await lease.extend().catch((error) => error.code) // or the next renewal, a third of the ttl later
  console.log(`the server does not answer: ${failed}, the lease is ${lease.state}`)
  setTimeout(() => void admin.client('UNPAUSE'), 300)
}

await locks.close()
client.disconnect()
admin.disconnect()

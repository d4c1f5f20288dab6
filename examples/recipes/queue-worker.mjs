// A worker that gives a message back while its order is processed elsewhere:
// REDIS_URL=redis://127.0.0.1:6379 node examples/recipes/queue-worker.mjs
import { Redis } from 'ioredis'
import { createLocks, EngineError, HeldError } from 'ringfence'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const locks = createLocks(redis(client))

/** `work` must bear a repeat: a worker that dies after the work and before `done` makes its message come again. */
async function handle(message, work) {
  try {
    await locks.using(`order:${message.order}`, { wait: 0 }, (lease) => work(message, lease))
    await queue.done(message)
    return 'done'
  } catch (error) {
    // Processed elsewhere. That lease may be renewed, so this is the soonest that is worth a look.
    if (error instanceof HeldError) return queue.back(message, error.remainingMs ?? 5000)
    // The locks cannot be asked. That says nothing about the message: back with it, and do not count it as a failed try.
    if (error instanceof EngineError) return queue.back(message, 5000)
    throw error // the work's own error, or a lost lease: whatever your queue does with a failure
  }
}

// A queue for the demonstration: what is due first comes first.
const queue = {
  done: (message) => client.zrem('orders', JSON.stringify(message)),
  back: async (message, delayMs) => {
    await client.zadd('orders', Date.now() + delayMs, JSON.stringify(message))
    return `back in the queue, within the ttl: ${delayMs > 0 && delayMs <= 30_000}`
  },
}

const elsewhere = await locks.acquire('order:7')
console.log(await handle({ order: 7 }, () => console.log('never runs')))
await elsewhere.release()
console.log(await handle({ order: 7 }, ({ order }) => console.log(`order ${order} is processed`)))

await locks.close()
client.disconnect()

import { createLocks } from 'ringfence'
import { memory } from 'ringfence/memory'

const locks = createLocks(memory(), { ttl: '30s', wait: '10s' })

async function charge(worker) {
  await locks.using('order:42', async (lease) => {
    console.log(`${worker} worker holds order:42, token ${lease.token}`)
  })
}
await Promise.all([charge('first'), charge('second')])
await locks.close()

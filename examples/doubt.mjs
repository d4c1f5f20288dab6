// Work that holds back its side effects while nobody confirms its lease: node examples/doubt.mjs
import { createLocks } from 'ringfence'
import { memory } from 'ringfence/memory'

const locks = createLocks(memory(), { ttl: '30s' })

await locks.using('report', async (lease) => {
  for (const page of [1, 2]) {
    // At once while all is well. After a renewal that failed, it waits for one that is proved, and throws if the lease is lost.
    await lease.proved()
    console.log(`page ${page} sent, lease is ${lease.state}`)
  }
})

// Nobody should pay twice, so the second one waits a little for the first one and then gets null.
const paying = await locks.acquire('payment:7', { onDoubt: 'stop' })
console.log(await locks.tryAcquire('payment:7', { wait: '50ms' }))
await paying.release()
await locks.close()

// Leader election: the work runs in one process at a time; a process that loses the lease campaigns again.
import { createLocks } from 'ringfence'
import { memory } from 'ringfence/memory'

const locks = createLocks(memory(), { ttl: '5s' })
const result = await locks.elect('scheduler', async (lease) => {
  console.log(`leading, term ${lease.token}`)
  // Work until the leadership ends: pass lease.signal on to everything that can be stopped.
  return lease.signal.aborted ? 'lost' : 'stepped down'
})
console.log(result)

// A scheduled job that must run on one machine only, and not again within 100 ms.
const job = () => locks.once('nightly-report', { atLeast: '100ms' }, () => 'report sent')
console.log(await job())
console.log(await job())
await locks.close()

// Another process on the file of a test: looks at the lease that the test holds, takes one itself, and keeps it until its input
// ends. Prints one line of JSON.
//
//   node test/runtimes/file-sharer.mjs FILE
import { once } from 'node:events'
import process from 'node:process'
import { createLocks } from 'ringfence'
import { file } from 'ringfence/file'

const locks = createLocks(file(process.argv[2]), { ttl: '60s', wait: 0 })
const refused = await locks.tryAcquire('of the test')
const [holder] = (await locks.status('of the test')).holders
const lease = await locks.tryAcquire('of the other')
process.stdout.write(`${JSON.stringify({ refused, remainingMs: holder.remainingMs, resources: lease.resources })}\n`)
await once(process.stdin.resume(), 'end')
await locks.close()

// A lease that is taken in a web server and finished in a worker process: node examples/moving.mjs
import { fork } from 'node:child_process'
import { createLocks } from 'ringfence'
import { file } from 'ringfence/file'

const locks = createLocks(file(process.env.LOCK_FILE))

if (process.argv[2] !== 'worker') {
  const lease = await locks.acquire('invoice:42', { note: 'request 7f3a' })
  const worker = fork(import.meta.filename, ['worker'])
  // From here on the lease is nobody's to renew: the worker has its ttl to adopt it.
  worker.send(await lease.handOff())
  console.log(`web server: moved ${lease.moved}, held ${lease.held}`)
  worker.on('exit', () => {
    console.log('web server: the worker is done')
    void locks.close()
  })
} else {
  process.once('message', (ticket) => void finish(ticket))
}

async function finish(ticket) {
  const lease = await locks.adopt(ticket)
  console.log(`worker: held ${lease.held}, for ${lease.note}, token greater ${lease.token > BigInt(ticket.token)}`)
  const again = await locks.adopt(ticket).catch((error) => error)
  console.log(`worker: a ticket is good for once: ${again.code}`)
  await lease.release()
  await locks.close()
  process.disconnect()
}

// BullMQ, a worker that does not do a job twice: REDIS_URL=redis://127.0.0.1:6379 node examples/frameworks/bullmq.mjs
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Queue, QueueEvents, UnrecoverableError, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { createLocks, StaleTokenError } from 'ringfence'
import { redisGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null })
const connection = client
const say = (text) => console.log(text)

/** BullMQ gives a job to another worker when this one has not renewed its claim. It cannot stop this one. */
function startWorker(name) {
  const locks = createLocks(redis(client), { ttl: '1s', wait: '30s' })
  const guard = redisGuard(client)

  const send = (job) =>
    locks.using(`invoice:${job.data.id}`, async (lease) => {
      const key = `{invoice:${job.data.id}}:sent`
      await guard.enter(lease) // from here on, the store refuses everybody who had the lease before
      if (await client.exists(key)) return 'sent already'
      say(`${name} renders the invoice`)
      await sleep(300) // … where it is stopped, in this example
      await guard.set(lease, key, name)
      say(`${name} has sent it`)
      return 'sent'
    })

  const worker = new Worker(
    'invoices',
    (job) =>
      send(job).catch((error) => {
        // A newer holder has taken over: trying again is not for us.
        if (!(error instanceof StaleTokenError)) throw error
        say(`${name} was refused: ${error.code}`)
        throw new UnrecoverableError(error.message)
      }),
    { connection, lockDuration: 1000, stalledInterval: 500 },
  )
  worker.on('error', () => undefined) // the claim of a worker that was stopped is gone, says BullMQ
  const end = async () => {
    await worker.close()
    await locks.close()
    client.disconnect()
  }
  process.once('SIGTERM', () => void end())
}

async function main() {
  const queue = new Queue('invoices', { connection })
  const listener = client.duplicate()
  const events = new QueueEvents('invoices', { connection: listener })
  const workers = []
  const start = (name) => {
    const child = spawn(process.execPath, [process.argv[1], name], { stdio: ['ignore', 'pipe', 'inherit'] })
    child.stdout.pipe(process.stdout, { end: false })
    const ended = once(child, 'exit')
    const early = ended.then(([code, signal]) => Promise.reject(new Error(`the ${name} has ended: ${signal ?? code}`)))
    early.catch(() => undefined)
    workers.push({ child, ended })
    return { child, before: (promise) => Promise.race([promise, early]), says: () => once(child.stdout, 'data') }
  }

  try {
    await events.waitUntilReady()
    const job = await queue.add('send', { id: 42 })
    const first = start('first worker')
    await first.before(first.says())
    first.child.kill('SIGSTOP')
    say('the first worker stands still')
    const second = start('second worker')
    say(`the job is done: ${await second.before(job.waitUntilFinished(events))}`)
    const refused = first.says()
    first.child.kill('SIGCONT')
    await first.before(refused)
    say(`sent by the ${await client.get('{invoice:42}:sent')}`)
  } finally {
    for (const { child } of workers) {
      child.kill('SIGCONT') // a stopped process would not hear the next one
      child.kill('SIGTERM')
    }
    await Promise.all(workers.map(({ ended }) => ended))
    await events.close()
    listener.disconnect() // BullMQ leaves open what it was given
    await queue.obliterate({ force: true })
    await queue.close()
    await client.del('{invoice:42}:sent')
    client.disconnect()
  }
}

if (process.argv[2] === undefined) await main()
else startWorker(process.argv[2])

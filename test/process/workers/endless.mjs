// Enters the critical section again and again until it is killed, and notes in a file when it enters and leaves.
import { appendFileSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { createLocks } from '../../../dist/index.js'

const [connector, ttlMs, log] = process.argv.slice(2)
const { connect } = await import(`../connect/${connector}.mjs`)
const locks = createLocks(await connect(), { ttl: Number(ttlMs), wait: '60s' })
process.send({ type: 'ready' })
for (;;) {
  await locks.using('section', async ({ token }) => {
    appendFileSync(log, `enter ${token}\n`)
    await setImmediate()
    appendFileSync(log, `leave ${token}\n`)
  })
}

// Enters the critical section again and again until it is killed, and notes in a file when it enters and leaves.
import { appendFileSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { createLocks } from '../../../dist/index.cjs'

const [connector, ttlMs, log, kind = 'writer'] = process.argv.slice(2)
const { connect } = await import(`../connect/${connector}.mjs`)
const locks = createLocks(await connect(), { ttl: Number(ttlMs), wait: '60s' })
process.send({ type: 'ready' })
for (;;) {
  await locks.using('section', { shared: kind === 'reader' }, async ({ token }) => {
    appendFileSync(log, `enter ${token} ${kind} ${process.pid}\n`)
    await setImmediate()
    appendFileSync(log, `leave ${token} ${kind} ${process.pid}\n`)
  })
}

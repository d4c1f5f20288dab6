// Enters the critical section again and again, and notes in a list when it does and when it leaves.
import { Redis } from 'ioredis'
import { connectLocks } from './connect.mjs'

const { LOG_PORT, ROUNDS, LANES } = process.env
let isTold = false
const observe = ({ type }) => {
  if (type !== 'waiting' || isTold) return
  isTold = true
  process.send({ type })
}
const locks = await connectLocks({ ttl: '20s', observe })
const log = new Redis({ host: '127.0.0.1', port: Number(LOG_PORT) })
await log.ping()
process.send({ type: 'ready' })
await new Promise((resolve) => process.once('message', resolve))

let entered = 0
async function lane() {
  while (entered < Number(ROUNDS)) {
    entered++
    await locks.using('section', { wait: '100s' }, async (lease) => {
      const visit = `${process.pid} ${lease.token}`
      await log.rpush('log', `enter ${visit}`)
      await log.rpush('log', `leave ${visit}`)
    })
  }
}
await Promise.all(Array.from({ length: Number(LANES) }, lane))
process.send({ type: 'done', entered })

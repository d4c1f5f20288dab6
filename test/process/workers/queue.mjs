// Many waiters of one process for one resource, one short section each; notes who got it and how.
import { Redis } from 'ioredis'
import { connectLocks } from './connect.mjs'

const { LOG_PORT, WAITERS, HAND_OVERS } = process.env
const handedOver = new Map()
let isTold = false
const observe = (event) => {
  if (event.type === 'granted') handedOver.set(event.owner, event.handedOver)
  if (event.type !== 'waiting' || isTold) return
  isTold = true
  process.send({ type: 'waiting' })
}
const locks = await connectLocks({
  ttl: '20s',
  wait: '100s',
  handOver: { count: Number(HAND_OVERS), time: '10s' },
  observe,
})
const log = new Redis({ host: '127.0.0.1', port: Number(LOG_PORT) })
await log.ping()
process.send({ type: 'ready' })
await new Promise((resolve) => process.once('message', resolve))

const section = (lease) => log.rpush('log', `${process.pid} ${handedOver.get(lease.owner) ? 'handed over' : 'won'}`)
await Promise.all(Array.from({ length: Number(WAITERS) }, () => locks.using('section', section)))
process.send({ type: 'done' })

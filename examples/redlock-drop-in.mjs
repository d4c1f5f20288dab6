// A program for npm's redlock, of which only the first import was changed:
// REDIS_URLS=redis://a:6379,redis://b:6379,redis://c:6379 node examples/redlock-drop-in.mjs
import Redlock, { ResourceLockedError } from 'ringfence/redlock'
import { Redis } from 'ioredis'

const clients = process.env.REDIS_URLS.split(',').map((url) => new Redis(url))
const redlock = new Redlock(clients, { retryCount: 3, retryDelay: 50 })
redlock.on('error', (error) => {
  if (!(error instanceof ResourceLockedError)) console.error(error.message)
})

let lock = await redlock.acquire(['order:42'], 5000)
lock = await lock.extend(10_000)
const { votesFor } = await lock.attempts[0]
console.log(`extended by ${votesFor.size} nodes`)
const error = await redlock.acquire(['order:42'], 5000).catch((error) => error)
console.log(`held: ${error.name} after ${error.attempts.length} attempts`)
await lock.release()

const next = await redlock.acquire(['order:42'], 5000)
// What redlock does not have: hand it to the store, which refuses an older one.
console.log(`the token has grown: ${next.fencingToken > lock.fencingToken}`)
await next.release()

const total = await redlock.using(['order:42'], 5000, async (signal) => {
  if (signal.aborted) throw signal.error
  return 12
})
console.log(`charged ${total}`)
await redlock.quit()

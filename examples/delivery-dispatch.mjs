// The delivery dispatch: a failover loses a lock, and two workers assign two drivers to one order. Both show up.
// The invariant is not "one worker holds the lock" but "one assignment is accepted": so the service that accepts it checks.
// REDIS_URL=redis://127.0.0.1:6379 node examples/delivery-dispatch.mjs
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { fencedErrors, fencedMiddleware, fencedOf, fencingHeaders, redisGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
await client.del('{order:42}:driver')

// The assignment service. A stale worker is refused by its token; a second assignment, by any worker, by the order's state.
const guard = redisGuard(client)
const ASSIGN = `if redis.call('set', KEYS[1], ARGV[1], 'nx') then return ARGV[1] end return redis.call('get', KEYS[1])`
const fence = fencedMiddleware(guard, { resource: ({ url }) => url.slice(1) })
const refuse = fencedErrors()
async function answer(request, response) {
  try {
    const input = { keys: ['{order:42}:driver'], args: [await text(request)] }
    response.end(`the driver is ${String(await guard.run(fencedOf(request), ASSIGN, input))}`)
  } catch (error) {
    refuse(error, request, response, () => response.writeHead(500).end())
  }
}
const server = createServer((request, response) => {
  fence(request, response, (error) => {
    if (error) response.writeHead(500).end()
    else void answer(request, response)
  })
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))

async function assign(worker, lease, driver) {
  const url = `http://127.0.0.1:${server.address().port}/order:42`
  const response = await fetch(url, { method: 'PUT', headers: lease && fencingHeaders(lease), body: driver })
  const answer = response.ok ? await response.text() : (await response.json()).title
  console.log(`${worker} assigns ${driver}: ${response.status}, ${answer}`)
}

const locks = createLocks(redis(client), { ttl: '20s', wait: 0 })
const first = await locks.acquire('order:42')
// The master dies before its replica has the lock; the replica that is promoted knows nothing of it.
await client.del('order:42')
const second = await locks.acquire('order:42')
console.log(`both workers believe to hold the order: ${first.held && second.held}`)
await assign('the second worker', second, 'Ada')
await assign('the first worker', first, 'Bob')
await assign('the second worker again, after a time-out,', second, 'Cem')
await assign('somebody without a lease', undefined, 'Dan')
console.log(`order:42 is delivered by ${await client.get('{order:42}:driver')}`)

await locks.close()
server.close()
client.disconnect()

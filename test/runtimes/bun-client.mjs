// Hands Bun's own Redis client in, and shows why it is no driver. Prints one line of JSON.
//
//   bun test/runtimes/bun-client.mjs URL     of a Redis server
import { setTimeout as sleep } from 'node:timers/promises'
import { redis } from 'ringfence/redis'

const { RedisClient } = globalThis.Bun
const client = new RedisClient(process.argv[2])
const subscriber = new RedisClient(process.argv[2])

function refusal() {
  try {
    redis(client)
    return 'taken'
  } catch (error) {
    return `${error.name}: ${error.message}`
  }
}

const connections = async () => {
  const list = await client.send('CLIENT', ['LIST'])
  return [...list.matchAll(/^id=(\d+)/gm)].map(([, id]) => Number(id))
}
const receivers = () => client.send('PUBLISH', ['news', 'x'])

let closes = 0
Object.assign(subscriber, { onclose: () => closes++ })
await client.connect()
await subscriber.connect()
await subscriber.subscribe('news', () => undefined)
const before = await receivers()
const known = await connections()
const killed = await client.send('CLIENT', ['KILL', 'TYPE', 'pubsub'])
while (!(await connections()).some((id) => !known.includes(id))) await sleep(10)
const onclose = closes
// A subscription that came back would come with the connection: five seconds are more than that takes.
let after = 0
for (let tries = 0; tries < 50 && after === 0; tries++) {
  after = await receivers()
  await sleep(100)
}
console.log(JSON.stringify({ refusal: refusal(), before, killed, onclose, after }))
process.exit()

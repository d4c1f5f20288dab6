// Hands Bun's own Redis client in. Prints what comes of it.
import { redis } from 'ringfence/redis'

const client = new globalThis.Bun.RedisClient('redis://127.0.0.1:1')
try {
  redis(client)
  console.log('taken')
} catch (error) {
  console.log(`${error.name}: ${error.message}`)
}

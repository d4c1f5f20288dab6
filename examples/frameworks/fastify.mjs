// Fastify, a handler under a lease: REDIS_URL=redis://127.0.0.1:6379 PORT=3000 node examples/frameworks/fastify.mjs
import Fastify from 'fastify'
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redisGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'
import { answerTo } from './answer.mjs'

const client = new Redis(process.env.REDIS_URL)
client.on('error', () => undefined) // the locks report an outage to those who ask for one
const locks = createLocks(redis(client), { ttl: '10s', wait: process.env.WAIT ?? '2s' })
const guard = redisGuard(client)

const app = Fastify({ forceCloseConnections: 'idle' })

/** The work returns the body. It is sent after the release, because only the release can tell whether the work was alone. */
function locked(nameOf, work) {
  return (request, reply) => {
    const gone = new AbortController()
    reply.raw.once('close', () => gone.abort(new Error('the client is gone')))
    return locks.using(nameOf(request), { signal: gone.signal }, (lease) => work(request, lease))
  }
}

app.post(
  '/orders/:id/charge',
  locked(
    (request) => `order:${request.params.id}`,
    async (request, lease) => {
      const { id } = request.params
      await guard.set(lease, `{order:${id}}:state`, 'charged') // refused, if a newer holder has been there
      return { charged: id, token: String(lease.token) }
    },
  ),
)
app.setErrorHandler(async (error, _request, reply) => {
  const answer = await answerTo(error, locks)
  if (answer === undefined) throw error
  return reply.status(answer.status).headers(answer.headers).send(answer.body)
})
app.addHook('onClose', async () => {
  await locks.close()
  client.disconnect()
})

await app.listen({ port: Number(process.env.PORT), host: '127.0.0.1' })
console.log('listening')
process.once('SIGTERM', () => void app.close())

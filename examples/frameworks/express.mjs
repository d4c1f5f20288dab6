// Express, a handler under a lease: REDIS_URL=redis://127.0.0.1:6379 PORT=3000 node examples/frameworks/express.mjs
import express from 'express'
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redisGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'
import { answerTo } from './answer.mjs'

const client = new Redis(process.env.REDIS_URL)
client.on('error', () => undefined) // the locks report an outage to those who ask for one
const locks = createLocks(redis(client), { ttl: '10s', wait: process.env.WAIT ?? '2s' })
const guard = redisGuard(client)

/** The work returns the body. It is sent after the release, because only the release can tell whether the work was alone. */
function locked(nameOf, work) {
  return async (request, response) => {
    const gone = new AbortController()
    response.once('close', () => gone.abort(new Error('the client is gone')))
    const body = await locks.using(nameOf(request), { signal: gone.signal }, (lease) => work(request, lease))
    response.json(body)
  }
}

const app = express()
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
app.use(async (error, _request, response, next) => {
  const answer = await answerTo(error, locks)
  if (response.destroyed) return
  if (answer === undefined) next(error)
  else response.status(answer.status).set(answer.headers).json(answer.body)
})

const server = app.listen(Number(process.env.PORT), () => console.log('listening'))
process.once('SIGTERM', () => {
  server.close(async () => {
    await locks.close()
    client.disconnect()
  })
  server.closeIdleConnections()
})

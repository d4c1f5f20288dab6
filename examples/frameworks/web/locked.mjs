// A handler under a lease, Request in and Response out: the form of Next.js' route handlers and of serverless platforms.
import { Redis } from 'ioredis'
import { createLocks } from 'ringfence'
import { redis } from 'ringfence/redis'
import { answerTo } from '../answer.mjs'

/**
 * Made for the first request and kept for the later ones, which the same process serves. On `globalThis`, because `next dev`
 * loads changed modules again; not at the top of the module, because `next build` loads it too.
 */
export function connection() {
  globalThis.connectionOfTheLocks ??= open()
  return globalThis.connectionOfTheLocks
}

function open() {
  const client = new Redis(process.env.REDIS_URL)
  client.on('error', () => undefined) // the locks report an outage to those who ask for one
  const { TTL: ttl = '10s', WAIT: wait = '2s' } = process.env
  return { client, locks: createLocks(redis(client), { ttl, wait }) }
}

/** The work returns the body. The answer is given after the release: from then on the platform may freeze the process. */
export function locked(nameOf, work) {
  return async (request, context) => {
    const { locks } = connection()
    try {
      const name = await nameOf(request, context)
      const body = await locks.using(name, { signal: request.signal }, (lease) => work(lease, request, context))
      return Response.json(body)
    } catch (error) {
      if (request.signal.aborted) return new Response(null, { status: 499 }) // nobody reads it
      const answer = await answerTo(error, locks)
      if (answer === undefined) throw error
      return Response.json(answer.body, { status: answer.status, headers: answer.headers })
    }
  }
}

// What an HTTP service answers when a lock says no. The Express and Fastify examples use it.
import { EngineError, HeldError, LeaseLostError, StaleTokenError, WaitTimeoutError } from 'ringfence'

/** Resolves with undefined for an error that has nothing to do with locks. */
export async function answerTo(error, locks) {
  // Someone else has it. The client may come again when that lease is over, unless it is renewed.
  if (error instanceof HeldError) return answer(423, 'locked', error.remainingMs)
  if (error instanceof WaitTimeoutError) return answer(423, 'locked', await remainingMs(error.resources, locks))
  // Someone else had it before the work was done. What was done is not known here: look before trying again.
  if (error instanceof StaleTokenError || error instanceof LeaseLostError) return answer(409, 'lost the lock')
  // Nobody can say who has it. That is not "locked", and nothing was done.
  if (error instanceof EngineError) return answer(503, 'no lock service', error.transient ? 1000 : undefined)
  return undefined
}

function answer(status, message, retryAfterMs) {
  const headers =
    retryAfterMs === undefined ? {} : { 'Retry-After': String(Math.max(1, Math.ceil(retryAfterMs / 1000))) }
  return { status, headers, body: { error: message } }
}

/** What is left of the leases that are in the way. Undefined if that cannot be found out. */
async function remainingMs(resources, locks) {
  try {
    const found = await Promise.all(resources.map((name) => locks.status(name)))
    const holders = found.flatMap((status) => status?.holders ?? []) // null: free by now
    return Math.max(1000, ...holders.map((holder) => holder.remainingMs ?? 1000))
  } catch {
    return undefined
  }
}

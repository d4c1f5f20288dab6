import { LeaseLostError } from './errors.ts'
import type { Lease } from './lease.ts'

export type Work<T> = (lease: Lease) => T | Promise<T>

/**
 * Runs work under a lease and releases it afterwards. If the work throws, its error is what the caller gets. A result is
 * handed out only if the lease was held until its release: after a loss, another process may have done the same work. A
 * release that fails proves no loss; it is an event.
 */
export async function section<T>(granted: Lease | Promise<Lease>, work: Work<T>): Promise<T> {
  const lease = await granted
  let value: T
  try {
    value = await work(lease)
    if (!lease.released) lease.assertHeld()
  } catch (error) {
    await lease.release().catch(() => undefined)
    throw error
  }
  let isOurs = true
  try {
    isOurs = await lease.release()
  } catch {
    // An event says so.
  }
  if (isOurs) return value
  throw new LeaseLostError(lease.resources, 'unnoticed')
}

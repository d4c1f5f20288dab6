import { shown } from './duration.ts'
import { LeaseLostError } from './errors.ts'
import type { Lease } from './lease.ts'
import { NO_OPTIONS, type LeaseOptions } from './options.ts'

export type Work<T, L = Lease> = (lease: L) => T | Promise<T>

/**
 * Runs work under a lease and releases it afterwards. If the work throws, its error is what the caller gets. A result is
 * handed out only if the lease was held until its release: after a loss, another process may have done the same work. A
 * release that fails proves no loss; it is an event.
 */
export async function section<T, L extends Lease = Lease>(granted: L | Promise<L>, work: Work<T, L>): Promise<T> {
  const lease = await granted
  let value: T
  try {
    value = await work(lease)
    if (!lease.released && !lease.moved) lease.assertHeld()
  } catch (error) {
    await lease.release().catch(() => undefined)
    throw error
  }
  // The work goes on in another process, which has the lease now.
  if (lease.moved) return value
  let isOurs = true
  try {
    isOurs = await lease.release()
  } catch {
    // An event says so.
  }
  if (isOurs) return value
  throw new LeaseLostError(lease.resources, 'unnoticed')
}

/** Reads what ends a call of `using` or `elect`: the work, or options and the work. */
export function optionsAndWork<O extends LeaseOptions, W>(rest: [W] | [O, W], call: string, named = true): [O, W] {
  const given: readonly unknown[] = rest
  if (given.length > 2) {
    throw new TypeError(
      `${call}: expected ${named ? 'a name, ' : ''}options and the work, got ${given.length + (named ? 1 : 0)} arguments; ` +
        'settings such as a ttl go into the options: { ttl: 5000 }',
    )
  }
  const [options, work] = rest.length === 1 ? [NO_OPTIONS as O, rest[0]] : rest
  if (typeof work !== 'function')
    throw new TypeError(`work: expected a function, the last argument of ${call}, got ${shown(work)}`)
  return [options, work]
}

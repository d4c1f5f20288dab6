import { given, optionsOrThrow } from './arguments.ts'
import type { Calls } from './calls.ts'
import { durationMs, shown, type Duration } from './duration.ts'
import { Lease } from './lease.ts'
import { resourceName, waitTerms } from './options.ts'
import { section, type Work } from './section.ts'

export interface OnceOptions {
  /**
   * The job does not run again before this time has passed since its start, even if it ends sooner. If its lease is lost, the
   * time counts from the request for the lease, a round trip before the start. Default 0.
   */
  atLeast?: Duration
  /** The job's lease ends after this time even if the job still runs; its signal aborts. Not below `atLeast`. Default: never. */
  atMost?: Duration
  /** How soon the job may run elsewhere after this machine has died. Default: the ttl of the locks. At least `atLeast` is used. */
  ttl?: Duration
  /** What it is held for, for people who look at the locks. Default: the note of the locks. */
  note?: string
}

export type OnceOutcome<T> = { readonly ran: true; readonly value: T } | { readonly ran: false }

/** Runs the job, unless it runs or has just run elsewhere. */
export async function once<T>(
  calls: Calls,
  name: string,
  options: OnceOptions,
  work: Work<T>,
): Promise<OnceOutcome<T>> {
  if (typeof options === 'function')
    throw new TypeError('options: expected an object, got a function; without options: once(name, {}, work)')
  optionsOrThrow(options, ['atLeast', 'atMost', 'ttl', 'note'])
  if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
  const { maxTtlMs: maxMs, longer } = calls.engine.limits
  const atLeastMs = durationMs(options.atLeast ?? 0, 'atLeast', longer === undefined ? { maxMs } : { maxMs, longer })
  const { ttl, atMost, note } = options
  const maxHoldMs = atMost === undefined ? Infinity : durationMs(atMost, 'atMost', { minMs: 1, maxMs: Infinity })
  if (maxHoldMs < atLeastMs) {
    throw new RangeError(
      `atMost: expected at least as long as atLeast, which is ${atLeastMs} ms, got ${shown(atMost)}; ` +
        'a lease that ends before atLeast would let the job run again too early',
    )
  }
  const terms = { ...waitTerms(given({ ttl, note }), calls.settings.defaults, calls.engine), maxHoldMs }
  // The first ttl covers atLeast, so that atLeast is kept even if this machine dies during the job. It is not kept with
  // postgresAdvisory then, because its leases end with their connection.
  const lease = await calls.tryAcquire([resourceName(name)], {
    ...terms,
    ttlMs: Math.max(terms.ttlMs, atLeastMs),
    keepMs: atLeastMs,
  })
  if (!(lease instanceof Lease)) return { ran: false }
  return { ran: true, value: await section(lease, work) }
}

import { optionsOrThrow } from './arguments.ts'
import type { Desk } from './desk.ts'
import { durationMs, shown, type Duration } from './duration.ts'
import { Lease, shortestTtlMs } from './lease.ts'
import { resourceNames, waitTerms, type WaitTerms } from './options.ts'

export interface OnceOptions {
  /** Nobody runs the job again before this time has passed since it began, however soon it is done. Default 0. */
  atLeast?: Duration
  /** The job's lease ends after this time, even if it still runs; its signal tells it. Default: never. */
  atMost?: Duration
  /** How soon the job may run elsewhere after this machine has died. Default as of the locks, and not below `atLeast`. */
  ttl?: Duration
}

export type OnceOutcome<T> = { readonly ran: true; readonly value: T } | { readonly ran: false }

/** Runs the job unless it runs, or has just run, somewhere else. */
export async function once<T>(
  desk: Desk,
  defaults: WaitTerms,
  name: string,
  options: OnceOptions,
  work: (lease: Lease) => T | Promise<T>,
): Promise<OnceOutcome<T>> {
  optionsOrThrow(options, ['atLeast', 'atMost', 'ttl'])
  if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
  const atLeastMs = durationMs(options.atLeast ?? 0, 'atLeast', { maxMs: desk.limits.maxTtlMs })
  const { ttl, atMost } = options
  const maxHoldMs = atMost === undefined ? Infinity : durationMs(atMost, 'atMost', { minMs: 1, maxMs: Infinity })
  const terms = { ...waitTerms(ttl === undefined ? {} : { ttl }, defaults, desk.engine), maxHoldMs }
  // The first ttl covers atLeast, so that it holds even if this machine dies in the middle of the job.
  const lease = await desk.tryAcquire(resourceNames(name), {
    ...terms,
    ttlMs: Math.max(terms.ttlMs, atLeastMs),
  })
  if (!(lease instanceof Lease)) return { ran: false }
  const began = desk.clock.monotonicMs()
  try {
    const value = await work(lease)
    if (!lease.released) lease.assertHeld()
    return { ran: true, value }
  } finally {
    const restMs = atLeastMs - (desk.clock.monotonicMs() - began)
    if (restMs <= 0 || !lease.held) await lease[Symbol.asyncDispose]()
    // If the rest can't be set, the lease runs out with its ttl, which is longer: nothing is run too early.
    else await desk.leave(lease, Math.max(restMs, shortestTtlMs(desk.limits))).catch(() => undefined)
  }
}

import { optionsOrThrow } from './arguments.ts'
import { shown } from './duration.ts'
import type { Lease } from './lease.ts'
import type { Locks } from './locks.ts'
import { LEASE_OPTIONS, type LeaseOptions } from './options.ts'

export interface ElectOptions extends LeaseOptions {
  /** Ends the campaign; a leader's own signal aborts too, and its work is waited for. */
  signal?: AbortSignal
}

/**
 * Waits to be elected, leads, and after a loss campaigns again. Resolves with the work's result when the work ends while
 * leading: it has stepped down. Rejects with the work's own error, unless that is nothing but the news of the loss.
 */
export async function elect<T>(
  locks: Locks,
  name: string,
  lead: (lease: Lease) => T | Promise<T>,
  options: ElectOptions,
): Promise<T> {
  if (typeof lead !== 'function') throw new TypeError(`lead: expected a function, got ${shown(lead)}`)
  optionsOrThrow(options, [...LEASE_OPTIONS, 'signal'])
  for (;;) {
    await using lease = await locks.acquire(name, { ...options, wait: Infinity })
    // The election's own end must reach the leader: by giving the leadership up, which ends its signal.
    const resign = (): void => void lease.release().catch(() => undefined)
    options.signal?.addEventListener('abort', resign, { once: true })
    if (options.signal?.aborted === true) resign()
    try {
      const value = await lead(lease)
      if (lease.held) return value
    } catch (error) {
      if (lease.held || !isNewsOfTheLoss(error, lease)) throw error
    } finally {
      options.signal?.removeEventListener('abort', resign)
    }
    options.signal?.throwIfAborted()
  }
}

function isNewsOfTheLoss(error: unknown, lease: Lease): boolean {
  return (
    error === lease.signal.reason ||
    (error instanceof Error && (error.name === 'AbortError' || error.name === 'LeaseLostError'))
  )
}

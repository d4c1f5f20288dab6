import { onAbort } from './aborts.ts'
import { optionsOrThrow } from './arguments.ts'
import type { Lease } from './lease.ts'
import type { Locks } from './locks.ts'
import { LEASE_OPTIONS, resourceName, type LeaseOptions } from './options.ts'
import type { Work } from './section.ts'

/** Options of `elect`. */
export interface ElectOptions extends LeaseOptions {
  /**
   * Ends the campaign: the call rejects with the signal's reason. If this process leads, the signal of its lease aborts with the
   * same reason, and the lease is kept until the work has settled.
   */
  signal?: AbortSignal
}

/**
 * Waits to be elected, leads, and campaigns again after a loss. Resolves with the work's result when the work ends while it
 * leads. A loss that only the release finds counts as a loss. Rejects with the work's own error, unless that error only
 * reports the loss or the end of the campaign. A campaign that ends while the work runs keeps its lease until the work has
 * settled: another process that led before that would be a second leader.
 */
export async function elect<T>(locks: Locks, name: string, options: ElectOptions, work: Work<T>): Promise<T> {
  optionsOrThrow(options, [...LEASE_OPTIONS, 'signal'])
  const resource = resourceName(name)
  for (;;) {
    const { signal } = options
    // With a signal: a wait without one is expected to end, and warned of after a while.
    const ended = signal ?? new AbortController().signal
    await using lease = await locks.acquire(resource, { ...options, signal: ended, wait: Infinity, reentrant: false })
    signal?.throwIfAborted()
    const stopListening = signal && onAbort(signal, () => lease.stopWork(signal.reason))
    try {
      const value = await work(lease)
      if (lease.moved) return value
      if (signal?.aborted !== true && lease.held) {
        // A release that fails proves no loss. One that finds the lease gone does: another process may have led meanwhile.
        if (await lease.release().catch(() => true)) return value
      }
    } catch (error) {
      const isOver = signal?.aborted === true || !lease.held
      if (!isOver || !reportsEnd(error, lease)) throw error
    } finally {
      stopListening?.()
    }
    signal?.throwIfAborted()
  }
}

function reportsEnd(error: unknown, lease: Lease): boolean {
  return (
    error === lease.signal.reason ||
    (error instanceof Error && (error.name === 'AbortError' || error.name === 'LeaseLostError'))
  )
}

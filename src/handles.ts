import type { LeaseRecord } from './lease-record.ts'
import { warn } from './platform.ts'

/**
 * Notices leases that the user has dropped. Such a lease is garbage-collected and must not be renewed forever: its record is
 * ended as abandoned, with a warning. If its signal was handed out, the user may still rely on the signal, directly or by a
 * listener or by a signal made from it. Then the lease goes on, but nobody can release it any more, and the warning says so.
 */
export class Handles {
  readonly #registry: FinalizationRegistry<LeaseRecord>

  constructor(abandoned: (record: LeaseRecord) => void) {
    this.#registry = new FinalizationRegistry((record) => {
      if (record.over !== undefined) return
      const what = `the lease on ${record.resources.join(', ')} was garbage-collected without release()`
      if (record.isObserved) {
        const why =
          'it is renewed until its locks are closed, since its signal may be in use; keep the lease to release it'
        warn(`${what}; ${why}`, 'RINGFENCE_UNRELEASED')
        return
      }
      record.renew = false
      warn(`${what}; it is no longer renewed`, 'RINGFENCE_ABANDONED')
      abandoned(record)
    })
  }

  /** Called at the first renewal: most leases are over by then and are never watched. */
  watch(record: LeaseRecord): void {
    if (record.handle === undefined) return
    this.#registry.register(record.handle, record, record)
    record.handle = undefined
  }

  forget(record: LeaseRecord): void {
    // It was never watched.
    if (record.handle !== undefined) return
    this.#registry.unregister(record)
  }
}

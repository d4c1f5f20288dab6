import type { LeaseRecord } from './lease.ts'

/** The leases that this process holds. */
export class HeldLeases {
  readonly #all = new Set<LeaseRecord>()
  /** The latest lease on each resource: one that was taken away may be here still, next to the one that followed it. */
  readonly #latest = new Map<string, LeaseRecord>()

  get size(): number {
    return this.#all.size
  }

  [Symbol.iterator](): Iterator<LeaseRecord> {
    return this.#all.values()
  }

  add(record: LeaseRecord): void {
    this.#all.add(record)
    for (const resource of record.resources) this.#latest.set(resource, record)
  }

  delete(record: LeaseRecord): void {
    this.#all.delete(record)
    for (const resource of record.resources) {
      if (this.#latest.get(resource) === record) this.#latest.delete(resource)
    }
  }

  /** A valid lease on one of these resources. */
  find(resources: readonly string[]): LeaseRecord | undefined {
    for (const resource of resources) {
      const record = this.#latest.get(resource)
      if (record !== undefined && record.remainingMs() > 0) return record
    }
    return undefined
  }
}

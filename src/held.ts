import type { LeaseRecord } from './lease.ts'

/** What a request wants, as far as it matters for who is in its way. */
export interface Wanted {
  readonly resources: readonly string[]
  readonly shared: boolean
}

/** The leases that this process holds. */
export class HeldLeases {
  readonly #all = new Set<LeaseRecord>()
  /**
   * The leases on each resource, the latest one last: one that was taken away may be here still, next to the one that followed
   * it, and shared ones are here together. One that is alone, as most are, is here without a set around it.
   */
  readonly #on = new Map<string, LeaseRecord | Set<LeaseRecord>>()

  get size(): number {
    return this.#all.size
  }

  [Symbol.iterator](): Iterator<LeaseRecord> {
    return this.#all.values()
  }

  add(record: LeaseRecord): void {
    this.#all.add(record)
    for (const resource of record.resources) {
      const there = this.#on.get(resource)
      if (there === undefined) this.#on.set(resource, record)
      else if (there instanceof Set) there.add(record)
      else this.#on.set(resource, new Set([there, record]))
    }
  }

  delete(record: LeaseRecord): void {
    this.#all.delete(record)
    for (const resource of record.resources) {
      const there = this.#on.get(resource)
      if (there === record) this.#on.delete(resource)
      else if (there instanceof Set && there.delete(record) && there.size === 0) this.#on.delete(resource)
    }
  }

  /** A valid lease in the way: on one of the resources, unless both are shared. */
  find({ resources, shared }: Wanted): LeaseRecord | undefined {
    for (const resource of resources) {
      const there = this.#on.get(resource)
      if (there === undefined) continue
      for (const record of there instanceof Set ? there : [there]) {
        if (!(shared && record.shared) && record.remainingMs() > 0) return record
      }
    }
    return undefined
  }
}

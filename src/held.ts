import { ByName } from './by-name.ts'
import type { LeaseRecord } from './lease.ts'

/** What a request wants, as far as it matters for who is in its way. */
export interface Wanted {
  readonly resources: readonly string[]
  readonly shared: boolean
}

/** The leases that this process holds. */
export class HeldLeases {
  /**
   * The leases on each resource, the latest one last: one that was taken away may be here still, next to the one that followed
   * it, and shared ones are here together. One that is alone, as most are, is here without a set around it.
   */
  readonly #on = new ByName<LeaseRecord | Set<LeaseRecord>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  *[Symbol.iterator](): Generator<LeaseRecord> {
    for (const [resource, there] of this.#on) {
      // A lease on several resources is met at each of them.
      for (const record of all(there)) if (record.resources[0] === resource) yield record
    }
  }

  add(record: LeaseRecord): void {
    this.#size++
    for (const resource of record.resources) {
      const there = this.#on.get(resource)
      if (there === undefined) this.#on.set(resource, record)
      else if (there instanceof Set) there.add(record)
      else this.#on.set(resource, new Set([there, record]))
    }
  }

  delete(record: LeaseRecord): void {
    let wasHere = false
    for (const resource of record.resources) {
      const there = this.#on.get(resource)
      if (there === record) this.#on.delete(resource)
      else if (!(there instanceof Set && there.delete(record))) continue
      else if (there.size === 0) this.#on.delete(resource)
      wasHere = true
    }
    if (wasHere) this.#size--
  }

  /** A valid lease in the way: on one of the resources, unless both are shared. */
  find({ resources, shared }: Wanted): LeaseRecord | undefined {
    for (const resource of resources) {
      const there = this.#on.get(resource)
      if (there === undefined) continue
      for (const record of all(there)) if (!(shared && record.shared) && record.remainingMs() > 0) return record
    }
    return undefined
  }
}

function all(there: LeaseRecord | Set<LeaseRecord>): Iterable<LeaseRecord> {
  return there instanceof Set ? there : [there]
}

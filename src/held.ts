import { ByName } from './by-name.ts'
import type { LeaseRecord } from './lease-record.ts'

/** The leases that this process holds. */
export class HeldLeases {
  readonly #byOwner = new ByName<LeaseRecord>()
  /** The latest exclusive lease on each resource: one that was taken away may be here still, next to the one that followed it. */
  readonly #latest = new ByName<LeaseRecord>()

  get size(): number {
    return this.#byOwner.size
  }

  *[Symbol.iterator](): Generator<LeaseRecord> {
    for (const [, record] of this.#byOwner) yield record
  }

  add(record: LeaseRecord): void {
    this.#byOwner.set(record.owner, record)
    if (record.shared) return
    for (const resource of record.resources) this.#latest.set(resource, record)
  }

  delete(record: LeaseRecord): void {
    if (this.#byOwner.get(record.owner) === record) this.#byOwner.delete(record.owner)
    for (const resource of record.resources) {
      if (this.#latest.get(resource) === record) this.#latest.delete(resource)
    }
  }

  /** A valid lease on one of these resources that is in a writer's way, though others may share it. Looks at all: it is for errors. */
  findShared(resources: readonly string[]): LeaseRecord | undefined {
    for (const record of this) {
      const isOne = record.shared && record.resources.some((resource) => resources.includes(resource))
      if (isOne && record.remainingMs() > 0) return record
    }
    return undefined
  }

  /** A valid lease on one of these resources that is in everybody's way, because it is exclusive. */
  find(resources: readonly string[]): LeaseRecord | undefined {
    for (const resource of resources) {
      const record = this.#latest.get(resource)
      if (record !== undefined && record.remainingMs() > 0) return record
    }
    return undefined
  }
}

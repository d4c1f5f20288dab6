import type { AsyncLocalStorage } from 'node:async_hooks'
import { heldHere, named, type HeldHere } from './errors.ts'
import type { Lease } from './lease.ts'
import type { LeaseRecord } from './lease-record.ts'
import type { WaitTerms } from './options.ts'
import { asyncStorage, warn } from './platform.ts'
import type { Work } from './section.ts'

/** Work that runs under the lease of a `using`, and the work that this `using` is inside of. */
export interface Use {
  readonly of: Nesting
  /** Undefined when the work is done: what it has left behind is not inside of it any more. */
  lease: Lease | undefined
  /** Calls inside of it may join its lease. */
  readonly isReentrant: boolean
  around: Use | undefined
}

/** What a call asks for. */
interface WantedLease {
  readonly resources: readonly string[]
  readonly shared: boolean
}

/** A call that waits. */
interface Waiting extends WantedLease {
  readonly terms: WaitTerms
  waitedMs(): number
}

/** Made at its first use, because on Node 20 and 22 it makes every promise of the process cost more. */
let uses: AsyncLocalStorage<Use> | undefined

/** Which `using` of these locks a call is inside of, as far as that is known: it is known of those that say `reentrant`. */
export class Nesting {
  #watches = false
  /** What was warned of: that a call may be inside of what it waits for, and that one is. */
  readonly #warnedOf = new Set<boolean>()

  /** What the code that runs now is inside of. */
  current(): Use | undefined {
    return uses?.getStore()
  }

  /** From now on every `using` is known: a call has waited for a lease of this process and did not get it. */
  watch(): void {
    this.#watches = true
  }

  /**
   * The lease of this process that a call with this use around it did not get past: one that it is inside of, or else the one that
   * was found.
   */
  heldHere(
    use: Use | undefined,
    { resources, shared }: WantedLease,
    found: LeaseRecord | undefined,
  ): HeldHere | undefined {
    const around = this.#around(use).find((lease) => !(shared && lease.shared) && hasSome(lease, resources))
    const held = around ?? found
    return held && { owner: held.owner, forMs: held.heldMs(), isInside: around !== undefined, shared: held.shared }
  }

  /**
   * Warns of a wait that nothing ends, once it has lasted for longer than the ttl of a lease of this process that was there before it: it
   * may be inside of the `using` of that lease, and no error would say so.
   */
  standsBehind(use: Use | undefined, waiting: Waiting, lease: LeaseRecord): void {
    const { waitMs, signal } = waiting.terms
    const waitedMs = waiting.waitedMs()
    if (waitMs < Infinity || signal !== undefined) return
    if (waitedMs <= lease.ttlMs || lease.heldMs() < waitedMs) return
    this.watch()
    const here = this.heldHere(use, waiting, lease)!
    if (this.#warnedOf.has(here.isInside)) return
    this.#warnedOf.add(here.isInside)
    const what = `a call waits for ${named(waiting.resources)} without an end`
    warn(`${what}, ${heldHere(here)}`, 'RINGFENCE_WAITS_FOR_ITSELF')
  }

  /** How many leases on one of these names are held around a call. */
  countAround(use: Use | undefined, names: readonly string[]): number {
    return this.#around(use).filter((lease) => hasSome(lease, names)).length
  }

  /** The lease that is around a call that wants these, with a handle of its own. Undefined if it must get one itself. */
  join({ resources, shared }: WantedLease): Lease | undefined {
    const leases = this.#around(this.current(), true)
    const around = leases.find((lease) => resources.every((name) => lease.resources.includes(name)))
    if (around === undefined) {
      const part = leases.find((lease) => hasSome(lease, resources))
      if (part !== undefined) throw onlyInPart(part, resources)
      return undefined
    }
    if (around.shared && !shared) throw notExclusive(around)
    return around.join()
  }

  /** The work of a `using` that starts now, so that calls inside of it know where they are. */
  around<T, L extends Lease>(work: Work<T, L>, isReentrant: boolean): Work<T, L> {
    if (!isReentrant && !this.#watches) return work
    const around = running(this.current())
    const storage = (uses ??= asyncStorage())
    // `reentrant` is refused there, and what is only watched for better errors is not seen.
    if (storage === undefined) return work
    return async (lease) => {
      const use: Use = { of: this, lease, isReentrant, around }
      try {
        return await storage.run(use, work, lease)
      } finally {
        use.lease = undefined
        // Work that starts its own successor would otherwise keep all of its predecessors in memory.
        use.around = running(around)
      }
    }
  }

  /** The leases of these locks that are held around a call, the innermost first. */
  #around(use: Use | undefined, onlyReentrant = false): Lease[] {
    const all: Lease[] = []
    for (let one = use; one !== undefined; one = one.around) {
      if (one.of !== this || (onlyReentrant && !one.isReentrant)) continue
      if (one.lease?.held === true) all.push(one.lease)
    }
    return all
  }
}

function hasSome({ resources }: Lease, names: readonly string[]): boolean {
  return names.some((name) => resources.includes(name))
}

/** The innermost of these whose work still runs. */
function running(use: Use | undefined): Use | undefined {
  let one = use
  while (one !== undefined && one.lease === undefined) one = one.around
  return one
}

function onlyInPart(lease: Lease, resources: readonly string[]): RangeError {
  return new RangeError(
    `resource: expected names of which the lease around this call, on ${named(lease.resources)}, has all or none, got ` +
      `${named(resources)}; a call cannot wait for a lease of its own caller: name all of them in the outer call`,
  )
}

function notExclusive(lease: Lease): RangeError {
  return new RangeError(
    `shared: expected true, because the lease around this call, on ${named(lease.resources)}, is shared, got false; readers that ` +
      'wait to be alone would wait for each other: take the outer lease without shared',
  )
}

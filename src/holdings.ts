import { onAbort } from './aborts.ts'
import { assertMovable } from './adopt.ts'
import { given } from './arguments.ts'
import type { Acquisition, Attempts } from './attempts.ts'
import type { Engine, EngineLimits, Release } from './engine.ts'
import type { Fairness } from './fairness.ts'
import { HeldLeases } from './held.ts'
import { Keeper } from './keeper.ts'
import { Lease, PermitLease, shortestTtlMs, type LeaseJson } from './lease.ts'
import { LeaseRecord } from './lease-record.ts'
import type { Lifetime } from './lifetime.ts'
import type { LeaseTerms, Settings } from './options.ts'
import type { Heir, Pools } from './pools.ts'
import { sameNames, type Queue } from './queue.ts'
import type { Waiter } from './waiter.ts'

export interface HoldingsParts {
  readonly lifetime: Lifetime
  readonly attempts: Attempts
  readonly queue: Queue<Waiter>
  readonly pools: Pools
  readonly fairness: Fairness
}

/** What this process holds, from the grant of a lease until it is released, handed over, left to run out, or lost. */
export class Holdings {
  readonly #engine: Engine
  readonly #settings: Settings
  readonly #parts: HoldingsParts
  readonly #held = new HeldLeases()
  readonly #keeper: Keeper

  constructor(engine: Engine, settings: Settings, parts: HoldingsParts) {
    this.#engine = engine
    this.#settings = settings
    this.#parts = parts
    this.#keeper = new Keeper(engine, settings, this.#held, parts.queue, (record) => this.#releaseQuietly(record))
  }

  get identity(): string {
    return this.#engine.identity
  }

  get limits(): EngineLimits {
    return this.#engine.limits
  }

  /**
   * An exclusive lease of this process on one of the resources: then no server need be asked. A shared one is not looked for. It is not
   * in a reader's way, and a writer that waits for it must say so to the servers, so that they keep later readers out.
   */
  find(resources: readonly string[]): LeaseRecord | undefined {
    return this.#held.find(resources)
  }

  /** A lease of this process that is in the way of a call, for the error of that call. */
  inTheWay(resources: readonly string[], shared: boolean): LeaseRecord | undefined {
    return this.#held.find(resources) ?? (shared ? undefined : this.#held.findShared(resources))
  }

  admit(acquisition: Acquisition, terms: LeaseTerms, waitedMs: number): Lease {
    const record = this.#record(acquisition, terms)
    const lease = terms.permit === undefined ? new Lease(record, this) : new PermitLease(record, this, terms.permit)
    record.handle = lease
    this.#keeper.add(record)
    const { call, resources, owner, token, shared, votes } = acquisition
    const handedOver = record.chain.count > 0
    const told = this.#settings.tell === undefined ? undefined : given({ votes: votes?.() })
    this.#settings.tell?.({ type: 'granted', call, resources, owner, token, waitedMs, handedOver, shared, ...told })
    return lease
  }

  /** Releases in the background what no call wants any more. */
  giveBack(acquisition: Acquisition): void {
    this.#releaseQuietly(this.#record(acquisition, this.#settings.defaults))
  }

  extend(record: LeaseRecord, ttlMs: number): Promise<void> {
    return this.#keeper.extend(record, ttlMs)
  }

  /** Resolves when the lease, which is held, is not in doubt. */
  prove(record: LeaseRecord, signal: AbortSignal | undefined): Promise<void> {
    if (signal === undefined) return this.#keeper.prove(record)
    return new Promise((resolve, reject) => {
      const stopListening = onAbort(signal, () => reject(signal.reason))
      this.#keeper.prove(record).then(resolve, reject).finally(stopListening)
    })
  }

  stopRenewing(record: LeaseRecord): void {
    this.#keeper.stopRenewing(record)
  }

  /** Ends the lease here and not on the servers, after a last extension. Returns what the next holder needs. */
  async handOff(record: LeaseRecord, lease: Lease): Promise<LeaseJson> {
    assertMovable(this.#engine, record)
    lease.assertHeld()
    if (record.keepLeftMs() > 0) {
      throw new RangeError(
        'handOff: expected a lease that may end, got that of a job of `once` before its `atLeast` is over; ' +
          'hand off one that acquire or using gave',
      )
    }
    this.#parts.lifetime.begin()
    try {
      await this.#keeper.prepareMove(record, lease)
      const json = lease.toJSON()
      this.#keeper.end(record, 'moved')
      return json
    } finally {
      this.#parts.lifetime.end()
    }
  }

  release(record: LeaseRecord): Promise<boolean> {
    // It is another process's by now, or will be.
    if (record.over === 'moved') return Promise.resolve(false)
    record.releasing ??= record.keepLeftMs() > 0 ? this.#leave(record) : this.#release(record)
    return record.releasing
  }

  /** Ends all leases and releases them in the background (those of `once` keep their `atLeast`). */
  close(): void {
    for (const record of this.#held) {
      this.#keeper.end(record, 'closed')
      this.#releaseQuietly(record)
    }
    this.#keeper.close()
  }

  #release(record: LeaseRecord): Promise<boolean> {
    const { clock } = this.#settings
    const { lifetime, fairness, queue } = this.#parts
    const { resources } = record
    lifetime.begin()
    const wasHeld = this.#keeper.end(record, 'released')
    const heir = wasHeld ? this.#heir(record) : undefined
    const beganMs = clock.monotonicMs()
    const request = heir === undefined ? this.#engine.release(record) : this.#handOver(record, heir)
    return request.then(
      ({ ours, awaited }) => {
        this.#tellReleased(record, ours)
        if (heir === undefined)
          queue.wake(resources, fairness.released(resources, awaited, clock.monotonicMs() - beganMs))
        lifetime.end()
        return ours
      },
      (error: unknown) => {
        this.#tellReleased(record, 'unknown', error)
        if (heir === undefined) queue.wake(resources, 0)
        lifetime.end()
        throw error
      },
    )
  }

  /** A failure is an event of `#release`; the lease then ends with its ttl. */
  #releaseQuietly(record: LeaseRecord): void {
    this.release(record).catch(() => undefined)
  }

  /** Who gets the lease directly, within the bounds: the first in line for the very same resources, or for a permit of the pool. */
  #heir({ resources, chain, shared }: LeaseRecord): Heir | undefined {
    const { queue, pools } = this.#parts
    if (queue.size === 0 && pools.size === 0) return undefined
    const { count, timeMs } = this.#settings.handOver
    if (this.#engine.handOver === undefined || chain.count >= count || shared) return undefined
    if (this.#settings.clock.monotonicMs() - chain.sinceMs > timeMs) return undefined
    const [head, ...others] = queue.heads(resources)
    if (head === undefined) return pools.heir(resources)
    if (head.shared || others.length > 0 || !sameNames(head.resources, resources)) return undefined
    return head.claim() ? head : undefined
  }

  async #handOver(record: LeaseRecord, heir: Heir): Promise<Release> {
    const chain = { count: record.chain.count + 1, sinceMs: record.chain.sinceMs }
    try {
      const outcome = await this.#parts.attempts.handOver(record, heir, chain)
      if (outcome.kind === 'acquired') return { ours: true, awaited: 0 }
      heir.resume()
      return { ours: outcome.reason === 'split', awaited: 0 }
    } catch (error) {
      heir.resume()
      throw error
    }
  }

  /**
   * Stops renewing and leaves the lease to run out when its time is over. Resolves with false if it was no longer ours. If the
   * time cannot be set, the lease runs out with its ttl, which covers `atLeast` since the request, and the event has the cause.
   */
  async #leave(record: LeaseRecord): Promise<boolean> {
    // It is over by our clocks, which may have been set ahead: the servers keep it for its ttl, which is never below the rest.
    if (record.over === undefined ? record.remainingMs() <= 0 : record.over !== 'closed') return false
    this.#parts.lifetime.begin()
    try {
      const answer = await this.#keeper.leave(record, shortestTtlMs(this.limits))
      this.#keeper.end(record, 'released')
      if (answer.kind === 'lost') {
        if (record.over === 'closed') this.#tellReleased(record, false)
        return false
      }
      if (record.over === 'released' || record.over === 'closed') {
        const { resources, owner, token } = record
        const cause = answer.kind === 'unknown' ? { cause: answer.cause } : {}
        this.#settings.tell?.({ type: 'left', resources, owner, token, heldMs: record.heldMs(), ...cause })
      }
      this.#parts.queue.wake(record.resources, 0)
      return true
    } finally {
      this.#parts.lifetime.end()
    }
  }

  #record(acquisition: Acquisition, { renew, maxHoldMs, onDoubt, keepMs }: LeaseTerms): LeaseRecord {
    const { clock } = this.#settings
    const chain = acquisition.chain ?? { count: 0, sinceMs: clock.monotonicMs() }
    const terms = { clock, limits: this.#engine.limits, renew, maxHoldMs, onDoubt, keepMs, chain }
    return new LeaseRecord(acquisition, acquisition.since, terms)
  }

  #tellReleased(record: LeaseRecord, ours: boolean | 'unknown', error?: unknown): void {
    const { resources, owner, token } = record
    const cause = error instanceof Error ? { cause: error } : {}
    this.#settings.tell?.({ type: 'released', resources, owner, token, ours, heldMs: record.heldMs(), ...cause })
  }
}

import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type {
  Engine,
  EngineLimits,
  Extension,
  Finding,
  Grant,
  Guarantees,
  LeaseInfo,
  LeaseRef,
  LeaseRequest,
  Refusal,
  Release,
  Watch,
} from '../../engine.ts'
import type { MongoDb } from './client.ts'
import { checkMongodb } from './doctor.ts'
import type { Shown } from './documents.ts'
import { Leases, type Held } from './leases.ts'
import { Leftovers } from './leftovers.ts'
import { asError, engineError } from './requests.ts'
import { Wakeups } from './wakeups.ts'

export interface MongodbSettings {
  readonly collection: string
  /** Undefined: a sixth of the ttl. */
  readonly timeoutMs: number | undefined
  readonly limits: EngineLimits
  readonly clock: Clock
  /** Whether a connection can be spared to wait for news on. */
  readonly canListen: boolean
}

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: 'a counter a resource, in a document that is never deleted, raised with the grant in one step',
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served in one process',
}

/** For requests that belong to no lease: the time a server has, as if it were one of 30 s. */
const NO_TTL_MS = 30_000

/** Leases as documents of one collection. */
export class MongodbEngine implements Engine {
  readonly name = 'mongodb'
  readonly identity: string
  readonly guarantees = GUARANTEES
  readonly limits: EngineLimits
  readonly #db: MongoDb
  readonly #settings: MongodbSettings
  readonly #deadlines: Deadlines
  readonly #leases: Leases
  readonly #leftovers: Leftovers
  readonly #wakeups: Wakeups

  constructor(db: MongoDb, settings: MongodbSettings) {
    const { clock, collection, limits } = settings
    this.identity = `mongodb:${db.databaseName}.${collection}`
    this.limits = limits
    this.#db = db
    this.#settings = settings
    this.#deadlines = new Deadlines(clock)
    this.#leases = new Leases(db, collection, this.#deadlines)
    this.#leftovers = new Leftovers(clock, (resources, owners) =>
      this.#leases.clear(resources, owners, this.#timeoutMs(NO_TTL_MS)),
    )
    this.#wakeups = new Wakeups(this.#leases.collection, clock, this.#deadlines)
  }

  async acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    try {
      if (resources.length === 1) {
        const shown = await this.#leases.take(resources[0]!, owner, ttlMs, 'majority', this.#timeoutMs(ttlMs))
        return shown.owner === owner ? { kind: 'granted', token: shown.token } : refusal(shown)
      }
      return (await this.#blocker(request)) ?? (await this.#takeAll(request))
    } catch (cause) {
      return await this.#failed(cause, request, [owner])
    }
  }

  async handOver(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal> {
    const { resources } = lease
    try {
      if (resources.length === 1) {
        const shown = await this.#leases.passOn(
          resources[0]!,
          lease.owner,
          next,
          'majority',
          this.#timeoutMs(next.ttlMs),
        )
        return shown === undefined ? { kind: 'refused', reason: 'held' } : { kind: 'granted', token: shown.token }
      }
      const outcome = await this.#takeAll(next, lease.owner)
      // Part of it was lost, so the rest is of no use to its old owner.
      if (outcome.kind === 'refused') await this.#clear(resources, [lease.owner], lease.ttlMs)
      return outcome
    } catch (cause) {
      // Which of the two has it is unknown, and neither wants it any more.
      return await this.#failed(cause, next, [lease.owner, next.owner])
    }
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const answers: Extension[] = []
    const byTtl = new Map<number, number[]>()
    for (const [index, { ttlMs }] of leases.entries()) {
      const same = byTtl.get(ttlMs)
      if (same === undefined) byTtl.set(ttlMs, [index])
      else same.push(index)
    }
    const groups = [...byTtl.values()].map(async (indexes) => {
      const group = await this.#extend(indexes.map((index) => leases[index]!))
      for (const [place, index] of indexes.entries()) answers[index] = group[place]!
    })
    await Promise.all(groups)
    return answers
  }

  async release(lease: LeaseRef): Promise<Release> {
    try {
      const ours = await this.#leases.free(lease, 'majority', this.#timeoutMs(lease.ttlMs))
      // Nobody tells the servers that he waits.
      return { ours, awaited: 0 }
    } catch (cause) {
      return await this.#failed(cause, lease, [lease.owner])
    }
  }

  watch(resources: readonly string[], freed: () => void): Watch {
    if (!this.#settings.canListen) return { armed: Promise.resolve(false), close: () => undefined }
    return this.#wakeups.watch(resources, freed)
  }

  async *inspect(resource?: string): AsyncIterable<LeaseInfo> {
    const resources = resource === undefined ? undefined : [resource]
    try {
      for await (const shown of this.#leases.look(resources, this.#timeoutMs(NO_TTL_MS))) {
        const { leftMs: remainingMs, heldMs, ...lease } = shown
        yield { ...lease, remainingMs, ...(heldMs === undefined ? {} : { heldMs }) }
      }
    } catch (cause) {
      throw engineError(cause, resources ?? [])
    }
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    return checkMongodb({
      db: this.#db,
      collection: this.#settings.collection,
      leases: this.#leases.collection,
      canListen: this.#settings.canListen,
      clock: this.#settings.clock,
      ttlMs,
      timeoutMs: this.#timeoutMs(ttlMs),
    })
  }

  async init(): Promise<readonly string[]> {
    const { collection } = this.#settings
    const name = `${this.#db.databaseName}.${collection}`
    try {
      if (await this.#leases.create(this.#timeoutMs(NO_TTL_MS))) return [`created the collection ${name}`]
      return [`the collection ${name} was there`]
    } catch (cause) {
      throw engineError(cause, [])
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#wakeups.close(), this.#leftovers.close()])
    this.#deadlines.close()
  }

  /**
   * Several resources, all or none, without a transaction, which a server without a replica set does not have:
   *
   * 1. Take one after the other, in the order of their names, each for itself: that raises its counter by one. At the
   *    first that is held, let go of those taken and give up. Nobody waits while he holds something, so no deadlock; and
   *    of several who want the same ones, the one who gets the first of them all is not stopped by the others there.
   * 2. The token is the highest counter met. One statement, on a majority, extends every document that is still ours and
   *    raises its counter to the token. Only if it found them all is the lease granted.
   *
   * A token is above all that were granted before on each of the resources, because the take raised each counter above
   * them. It is below all that will be, because each counter is at least the token at a moment when the resource was ours,
   * and no step lowers a counter. So tokens of one resource differ and grow; nothing of that rests on a clock.
   *
   * Step 1 needs no majority: what a failover takes back, step 2 does not find. A client that dies in the middle leaves
   * some of the resources held for their ttl, as one does that dies right after its grant.
   */
  async #takeAll(request: LeaseRequest, from?: string): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    const timeoutMs = this.#timeoutMs(ttlMs)
    let token = 0n
    for (const [index, resource] of resources.entries()) {
      const shown =
        from === undefined
          ? await this.#leases.take(resource, owner, ttlMs, 'primary', timeoutMs)
          : await this.#leases.passOn(resource, from, request, 'primary', timeoutMs)
      if (shown?.owner !== owner) {
        await this.#clear(resources.slice(0, index), [owner], ttlMs)
        return shown === undefined ? { kind: 'refused', reason: 'held' } : refusal(shown)
      }
      if (shown.token > token) token = shown.token
    }
    if (await this.#leases.raise(request, token, ttlMs, timeoutMs)) return { kind: 'granted', token }
    await this.#clear(resources, [owner], ttlMs)
    return { kind: 'refused', reason: 'split' }
  }

  /**
   * A look before the first step, so that those who want several resources do not take and let go of some of them again
   * and again while another is held: each time that would turn away, and wake, those who want only these.
   */
  async #blocker({ resources, owner, ttlMs }: LeaseRequest): Promise<Refusal | undefined> {
    let last: Shown | undefined
    for await (const shown of this.#leases.look(resources, this.#timeoutMs(ttlMs))) {
      if (shown.owner !== owner && (shown.leftMs ?? 0) > (last?.leftMs ?? 0)) last = shown
    }
    return last === undefined ? undefined : refusal(last)
  }

  /** All at once; if some were lost, in halves, until it is known which. */
  async #extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const { ttlMs } = leases[0]!
    try {
      if (await this.#leases.extend(leases, ttlMs, this.#timeoutMs(ttlMs))) return leases.map(() => ({ kind: 'held' }))
    } catch (error) {
      const cause = asError(error)
      return leases.map(() => ({ kind: 'unknown', cause }))
    }
    if (leases.length > 1) {
      const middle = leases.length >> 1
      const halves = [leases.slice(0, middle), leases.slice(middle)]
      return (await Promise.all(halves.map((half) => this.#extend(half)))).flat()
    }
    const { resources, owner } = leases[0]!
    // What is left of a lease on several resources was just extended, and nobody will release it.
    if (resources.length > 1) await this.#clear(resources, [owner], ttlMs)
    return [{ kind: 'lost' }]
  }

  async #clear(resources: readonly string[], owners: readonly string[], ttlMs: number): Promise<void> {
    if (resources.length > 0) await this.#leftovers.remove(undefined, { resources, owners, ttlMs })
  }

  /** The outcome is unknown: whatever it left is removed. */
  async #failed(cause: unknown, { resources, ttlMs }: Held & { ttlMs: number }, owners: string[]): Promise<never> {
    await this.#leftovers.remove(cause, { resources, owners, ttlMs })
    throw engineError(cause, resources)
  }

  /**
   * Small against the ttl: a sixth, so that a renewal, due after a third, can fail twice. At least 250 ms (or half of the
   * ttl) for a majority on a busy network, at most 5 s.
   */
  #timeoutMs(ttlMs: number): number {
    return this.#settings.timeoutMs ?? Math.min(Math.max(ttlMs / 6, Math.min(250, ttlMs / 2)), 5000)
  }
}

function refusal({ owner, leftMs }: Shown): Refusal {
  return { kind: 'refused', reason: 'held', holder: owner, ...(leftMs === undefined ? {} : { remainingMs: leftMs }) }
}

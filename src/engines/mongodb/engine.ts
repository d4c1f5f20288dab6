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
import { asError } from '../../errors.ts'
import { Cleanup } from '../shared/cleanup.ts'
import { inRounds } from '../shared/next-round.ts'
import type { MongoDb } from './client.ts'
import { cleanUpAfter } from './cleanup.ts'
import { checkMongodb } from './doctor/index.ts'
import { isPermanent, mongodbError } from './errors.ts'
import type { LeaseDocument } from './statements.ts'
import { MongodbSteps } from './steps.ts'
import { ChangeStreamWakeups } from './wakeups.ts'

export interface MongodbSettings {
  readonly collection: string
  readonly requestTimeoutMs: (ttlMs: number) => number
  readonly limits: EngineLimits
  readonly clock: Clock
  /** Whether a connection can be spared for a change stream. */
  readonly canListen: boolean
}

const GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the leader of the servers',
  token: 'one counter for each resource, in a document that is never deleted, raised in the same step as the grant',
  survives: { serverRestart: 'yes', lossOfServers: 'a minority', failover: 'yes' },
  order: 'first come, first served in one process',
}

/** Requests that belong to no lease have the timeout of a lease of 30 s. */
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
  readonly #steps: MongodbSteps
  readonly #cleanup: Cleanup
  readonly #wakeups: ChangeStreamWakeups

  constructor(db: MongoDb, settings: MongodbSettings) {
    const { clock, collection, limits } = settings
    this.identity = `mongodb:${db.databaseName}.${collection}`
    this.limits = limits
    this.#db = db
    this.#settings = settings
    this.#deadlines = new Deadlines(clock)
    this.#steps = new MongodbSteps(db, collection, clock, this.#deadlines)
    this.#cleanup = new Cleanup(clock, (error) => isPermanent(asError(error)))
    this.#wakeups = new ChangeStreamWakeups(this.#steps.collection, clock, this.#deadlines)
  }

  acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    return inRounds(this.#settings.clock, request, () => this.#acquire(request))
  }

  async #acquire(request: LeaseRequest): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    try {
      if (resources.length === 1) {
        const shown = await this.#steps.take(
          resources[0]!,
          owner,
          ttlMs,
          'majority',
          this.#settings.requestTimeoutMs(ttlMs),
        )
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
        const shown = await this.#steps.passOn(
          resources[0]!,
          lease.owner,
          next,
          'majority',
          this.#settings.requestTimeoutMs(next.ttlMs),
        )
        return shown === undefined ? { kind: 'refused', reason: 'held' } : { kind: 'granted', token: shown.token }
      }
      const outcome = await this.#takeAll(next, lease.owner)
      // A part of the lease was lost, so the rest is of no use to its old owner.
      if (outcome.kind === 'refused') await this.#clear(resources, [lease.owner], lease.ttlMs)
      return outcome
    } catch (cause) {
      // It is unknown which of the two holds it, and neither wants it any more.
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
      const ours = await this.#steps.free(lease, 'majority', this.#settings.requestTimeoutMs(lease.ttlMs))
      // The servers do not know who waits.
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
      for await (const shown of this.#steps.find(resources, this.#settings.requestTimeoutMs(NO_TTL_MS))) {
        const { leftMs: remainingMs, heldMs, ...lease } = shown
        yield { ...lease, remainingMs, ...(heldMs === undefined ? {} : { heldMs }) }
      }
    } catch (cause) {
      throw mongodbError(cause, resources ?? [])
    }
  }

  check(ttlMs: number): Promise<readonly Finding[]> {
    return checkMongodb({
      db: this.#db,
      collection: this.#settings.collection,
      leases: this.#steps.collection,
      canListen: this.#settings.canListen,
      clock: this.#settings.clock,
      ttlMs,
      timeoutMs: this.#settings.requestTimeoutMs(ttlMs),
    })
  }

  async init(): Promise<readonly string[]> {
    const { collection } = this.#settings
    const name = `${this.#db.databaseName}.${collection}`
    try {
      if (await this.#steps.create(this.#settings.requestTimeoutMs(NO_TTL_MS)))
        return [`Created the collection ${name}.`]
      return [`The collection ${name} existed already.`]
    } catch (cause) {
      throw mongodbError(cause, [])
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#wakeups.close(), this.#cleanup.close()])
    this.#deadlines.close()
  }

  /**
   * Several resources, all or none, without a transaction: a server without a replica set has no transactions.
   *
   * 1. Take one resource after the other, in the order of their names. Each take raises the counter of its resource by one.
   *    At the first resource that is held, free those taken before it and give up. Nobody waits while holding something, so
   *    there is no deadlock. Of several clients that want the same resources, the one that gets the first resource is not
   *    stopped by the others there.
   * 2. The token is the highest counter found. One statement, acknowledged by a majority, extends every document that is still
   *    ours and raises its counter to the token. The lease is granted only if the statement found all documents.
   *
   * The token is above every earlier token of each resource, because the take raised each counter above them. It is below
   * every later token, because each counter was at least the token while the resource was ours, and no step lowers a counter.
   * So the tokens of one resource differ and grow, and none of this depends on a clock.
   *
   * Step 1 needs no majority: step 2 does not find what a failover has rolled back. A client that dies in the middle leaves
   * some of the resources held for their ttl, like a client that dies right after its grant.
   */
  async #takeAll(request: LeaseRequest, from?: string): Promise<Grant | Refusal> {
    const { resources, owner, ttlMs } = request
    const timeoutMs = this.#settings.requestTimeoutMs(ttlMs)
    let token = 0n
    for (const [index, resource] of resources.entries()) {
      const shown =
        from === undefined
          ? await this.#steps.take(resource, owner, ttlMs, 'primary', timeoutMs)
          : await this.#steps.passOn(resource, from, request, 'primary', timeoutMs)
      if (shown?.owner !== owner) {
        await this.#clear(resources.slice(0, index), [owner], ttlMs)
        return shown === undefined ? { kind: 'refused', reason: 'held' } : refusal(shown)
      }
      if (shown.token > token) token = shown.token
    }
    if (await this.#steps.raise(request, token, ttlMs, timeoutMs)) return { kind: 'granted', token }
    await this.#clear(resources, [owner], ttlMs)
    return { kind: 'refused', reason: 'split' }
  }

  /**
   * A read before the first step, so that clients that want several resources do not take and free some of them again and
   * again while another one is held: each time would turn away, and then wake, clients that want only these.
   */
  async #blocker({ resources, owner, ttlMs }: LeaseRequest): Promise<Refusal | undefined> {
    let last: LeaseDocument | undefined
    for await (const shown of this.#steps.find(resources, this.#settings.requestTimeoutMs(ttlMs))) {
      if (shown.owner !== owner && (shown.leftMs ?? 0) > (last?.leftMs ?? 0)) last = shown
    }
    return last === undefined ? undefined : refusal(last)
  }

  /** All in one request. If some were lost, each half in a request of its own, until it is known which. */
  async #extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]> {
    const { ttlMs } = leases[0]!
    try {
      if (await this.#steps.extend(leases, ttlMs, this.#settings.requestTimeoutMs(ttlMs)))
        return leases.map(() => ({ kind: 'held' }))
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
    // The rest of a lease on several resources was just extended, and nobody will release it.
    if (resources.length > 1) await this.#clear(resources, [owner], ttlMs)
    return [{ kind: 'lost' }]
  }

  async #clear(resources: readonly string[], owners: readonly string[], ttlMs: number): Promise<void> {
    if (resources.length > 0) await this.#cleanup.now(() => this.#free(resources, owners), ttlMs)
  }

  /** The outcome is unknown, so everything that the request may have granted is freed. */
  async #failed(cause: unknown, { resources, ttlMs }: LeaseRequest | LeaseRef, owners: string[]): Promise<never> {
    await cleanUpAfter(cause, () => this.#free(resources, owners), ttlMs, this.#cleanup)
    throw mongodbError(cause, resources)
  }

  #free(resources: readonly string[], owners: readonly string[]): Promise<void> {
    return this.#steps.clear(resources, owners, this.#settings.requestTimeoutMs(NO_TTL_MS))
  }
}

function refusal({ owner, leftMs }: LeaseDocument): Refusal {
  return { kind: 'refused', reason: 'held', holder: owner, ...(leftMs === undefined ? {} : { remainingMs: leftMs }) }
}

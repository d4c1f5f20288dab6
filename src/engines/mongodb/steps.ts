import type { Deadlines } from '../../deadlines.ts'
import type { LeaseRef } from '../../engine.ts'
import { inTime, NoAnswerError } from '../shared/in-time.ts'
import type { MongoCollection, MongoDb, MongoUpdate } from './client.ts'
import { DurableWrites, JOURNALED, type Deployment } from './durable-writes.ts'
import { codeOf, DUPLICATE_KEY, isTaken } from './errors.ts'
import {
  extended,
  extendedReader,
  freed,
  heldBy,
  leaseOrThrow,
  live,
  LOOKED_AT,
  named,
  ownedBy,
  passOn,
  readBy,
  share,
  shareWith,
  SHOWN,
  take,
  takeWith,
  WANTED,
  type LeaseDocument,
} from './statements.ts'

type OwnedLease = Pick<LeaseRef, 'resources' | 'owner'>
type ExtendedLease = Pick<LeaseRef, 'resources' | 'owner' | 'ttlMs' | 'shared'>

/** Options of a request that bound it: the driver gives up when the signal aborts, the server by its own clock. */
export interface RequestBounds {
  readonly signal: AbortSignal
  readonly maxTimeMS: number
}

/** The server may still carry the request out: until `settled`, and a frozen server even later. */
export class UnansweredRequest extends NoAnswerError {
  /** The driver is done with the request. Never rejects. */
  readonly settled: Promise<void>

  constructor(timeoutMs: number, settled: Promise<void>) {
    super(timeoutMs)
    this.settled = settled
  }
}

/**
 * Sends a request with a deadline of our own. The driver's deadlines are of no use: it looks for a primary for up to 30 s, and
 * it waits for a silent server forever. The signal ends both: a request that was not sent yet is never sent, and the
 * connection of one that was sent is closed. Drivers that do not know the signal go on until the request is `settled`.
 */
export function bounded<T>(
  deadlines: Deadlines,
  timeoutMs: number,
  send: (bounds: RequestBounds) => Promise<T>,
): Promise<T> {
  const controller = new AbortController()
  const request = started(() => send({ signal: controller.signal, maxTimeMS: Math.ceil(timeoutMs) }))
  const silence = (): Error => {
    const settled = request.then(
      () => undefined,
      () => undefined,
    )
    const error = new UnansweredRequest(timeoutMs, settled)
    controller.abort(error)
    return error
  }
  return inTime(request, deadlines, timeoutMs, { silence })
}

/** A driver may also throw at once. */
async function started<T>(work: () => Promise<T>): Promise<T> {
  return work()
}

/** Whose acknowledgement a write waits for. A server without a replica set is its own majority. */
type Durability = 'majority' | 'primary'

const MOST_DUPLICATES = 5

/** The steps of the protocol on the collection, each with a deadline. */
export class MongodbSteps {
  readonly collection: MongoCollection
  readonly #db: MongoDb
  readonly #name: string
  readonly #deadlines: Deadlines
  readonly #durable: DurableWrites

  constructor(db: MongoDb, name: string, deadlines: Deadlines) {
    this.#db = db
    this.#name = name
    this.#deadlines = deadlines
    this.#durable = new DurableWrites(db)
    this.collection = db.collection(name, {
      // Whatever the client's own options are: a member that lags behind would show leases that have ended.
      readPreference: 'primary',
      ...PLAIN,
    })
  }

  /** One attempt at one resource. Returns what its document says afterwards. */
  async take(
    resource: string,
    { owner, ttlMs, shared = false }: Pick<ExtendedLease, 'owner' | 'ttlMs' | 'shared'>,
    durability: Durability,
    timeoutMs: number,
  ): Promise<LeaseDocument> {
    const update = shared ? share(owner, ttlMs) : take(owner, ttlMs)
    for (let duplicates = 0; ; duplicates++) {
      try {
        const document = await this.#findOneAndUpdate({ _id: resource }, update, durability, timeoutMs, true)
        return leaseOrThrow(document)
      } catch (error) {
        if (codeOf(error) !== DUPLICATE_KEY || duplicates >= MOST_DUPLICATES) throw error
      }
    }
  }

  /** Undefined if the old owner did not hold it. */
  async passOn(
    resource: string,
    from: string,
    next: { readonly owner: string; readonly ttlMs: number },
    durability: Durability,
    timeoutMs: number,
  ): Promise<LeaseDocument | undefined> {
    const update = passOn(next.owner, next.ttlMs)
    const document = await this.#findOneAndUpdate(ownedBy([resource], [from]), update, durability, timeoutMs, false)
    return document === null ? undefined : leaseOrThrow(document)
  }

  /**
   * Takes all of the resources with this token, which is above their counters, in the order of their names and in one request
   * that stops at the first one that cannot be taken. False if there was such a one; those before it may have been taken.
   */
  async takeAll(
    { resources, owner, ttlMs, shared = false }: ExtendedLease,
    token: bigint,
    timeoutMs: number,
  ): Promise<boolean> {
    const update = shared ? shareWith(token, owner, ttlMs) : takeWith(token, owner, ttlMs)
    const operations = resources.map((resource): MongoUpdate => ({
      updateOne: { filter: { _id: resource }, update, upsert: true },
    }))
    try {
      await this.#send(timeoutMs, 'majority', (options) =>
        this.collection.bulkWrite(operations, { ...options, ordered: true }),
      )
      return true
    } catch (error) {
      if (isTaken(error)) return false
      throw error
    }
  }

  /** The same for all resources of a lease. False if the old owner did not hold them all; some may have been passed on. */
  async passAllOn(lease: LeaseRef, next: { readonly owner: string; readonly ttlMs: number }, timeoutMs: number) {
    const { resources, owner, token } = lease
    // A part that was given back may have a greater counter than the rest.
    const filter = { ...ownedBy(resources, [owner]), token: { $lte: token } }
    const update = passOn(next.owner, next.ttlMs, token + 1n)
    const { matchedCount } = await this.#send(timeoutMs, 'majority', (options) =>
      this.collection.updateMany(filter, update, options),
    )
    return matchedCount === resources.length
  }

  /** What of the lease the next owner has, the old one has again. */
  async giveBack({ resources, owner, ttlMs }: LeaseRef, next: string, timeoutMs: number): Promise<void> {
    // The primary's acknowledgement is enough: its owner goes on only by an extension that a majority acknowledges.
    await this.#send(timeoutMs, 'primary', (options) =>
      this.collection.updateMany(ownedBy(resources, [next]), passOn(owner, ttlMs), options),
    )
  }

  /** True if every one of these leases was held in full and has its whole ttl again. */
  async extend(leases: readonly ExtendedLease[], timeoutMs: number): Promise<boolean> {
    const writers = leases.filter(({ shared = false }) => !shared)
    const readers = leases.filter(({ shared = false }) => shared)
    if (readers.length === 0) return this.#extendWriters(writers, timeoutMs)
    const each = readers.flatMap(({ resources, owner, ttlMs }) =>
      resources.map((resource) => ({ filter: readBy(resource, owner), update: extendedReader(owner, ttlMs) })),
    )
    const operations: MongoUpdate[] = each.map((updateOne) => ({ updateOne }))
    if (writers.length > 0) operations.push({ updateMany: { filter: allOwned(writers), update: extended(writers) } })
    const { matchedCount } = await this.#send(timeoutMs, 'majority', (options) =>
      this.collection.bulkWrite(operations, { ...options, ordered: false }),
    )
    return matchedCount === resourcesOf(leases).length
  }

  /** True if the lease was held in full. */
  async free({ resources, owner }: OwnedLease, durability: Durability, timeoutMs: number): Promise<boolean> {
    const filter = heldBy(resources, [owner])
    return (await this.#update(resources, filter, freed([owner]), durability, timeoutMs)) === resources.length
  }

  /** Frees those of the resources that one of the owners holds: `heldBy`, or only those that it holds alone: `ownedBy`. */
  async clear(
    resources: readonly string[],
    owners: readonly string[],
    timeoutMs: number,
    held = heldBy,
  ): Promise<void> {
    // The primary's acknowledgement is enough: a lease that comes back in a failover ends with its ttl.
    await this.#send(timeoutMs, 'primary', (options) =>
      this.collection.updateMany(held(resources, owners), freed(owners), options),
    )
  }

  /**
   * Keeps new readers of these resources out: also of those that are free, since readers of one would keep the writer waiting
   * after those of the other are gone.
   */
  async want(resources: readonly string[], timeoutMs: number): Promise<void> {
    // The primary's acknowledgement is enough: the writer asks again after a failover.
    await this.#send(timeoutMs, 'primary', (options) => this.collection.updateMany(named(resources), WANTED, options))
  }

  /** What the documents of these resources say, also of those that are free. Resources that nobody has had yet have none. */
  async look(resources: readonly string[], timeoutMs: number): Promise<LeaseDocument[]> {
    const documents: LeaseDocument[] = []
    // All in one answer.
    const options = { projection: LOOKED_AT, batchSize: resources.length + 1 }
    for await (const document of this.#read(named(resources), options, timeoutMs)) documents.push(document)
    return documents
  }

  /** The leases that are held, on these resources or on all. */
  find(resources: readonly string[] | undefined, timeoutMs: number): AsyncGenerator<LeaseDocument> {
    return this.#read(live(resources), { projection: SHOWN }, timeoutMs)
  }

  async *#read(filter: object, how: object, timeoutMs: number): AsyncGenerator<LeaseDocument> {
    const controller = new AbortController()
    // Also what the primary has not replicated to a majority yet: nothing is granted because of a read alone.
    const options = { ...READ, ...how, maxTimeMS: Math.ceil(timeoutMs), signal: controller.signal }
    const cursor = this.collection.find(filter, options)
    try {
      for (;;) {
        const document = await bounded(this.#deadlines, timeoutMs, () => cursor.next())
        if (document === null) return
        yield leaseOrThrow(document)
      }
    } catch (error) {
      controller.abort(error)
      throw error
    } finally {
      // The server ends a cursor that cannot be closed after it was idle for a while.
      cursor.close().catch(() => undefined)
    }
  }

  /** False if the collection existed already. */
  async create(timeoutMs: number): Promise<boolean> {
    const ask = (command: object): Promise<object> =>
      bounded(this.#deadlines, timeoutMs, ({ signal }) => this.#db.command(command, { ...PLAIN, signal }))
    const listed = await ask({ listCollections: 1, filter: { name: this.#name }, nameOnly: true })
    const { cursor } = listed as { cursor: { firstBatch: readonly unknown[] } }
    if (cursor.firstBatch.length > 0) return false
    await ask({ create: this.#name, writeConcern: { w: 'majority' } })
    return true
  }

  /**
   * One statement for any number of leases. It returns how many documents matched and not which ones; that is enough to
   * know that all did. An owner belongs to one acquisition, so it never matches a resource of another lease in the list.
   */
  async #extendWriters(leases: readonly ExtendedLease[], timeoutMs: number): Promise<boolean> {
    const resources = resourcesOf(leases)
    const matched = await this.#update(resources, allOwned(leases), extended(leases), 'majority', timeoutMs)
    return matched === resources.length
  }

  /** Returns how many documents matched. */
  async #update(
    resources: readonly string[],
    filter: object,
    update: object[],
    durability: Durability,
    timeoutMs: number,
  ): Promise<number> {
    const { matchedCount } = await this.#send(timeoutMs, durability, (options) =>
      // After a failover the driver itself repeats an update of one document, but not an update of many.
      resources.length === 1
        ? this.collection.updateOne(filter, update, options)
        : this.collection.updateMany(filter, update, options),
    )
    return matchedCount
  }

  #findOneAndUpdate(
    filter: object,
    update: object[],
    durability: Durability,
    timeoutMs: number,
    upsert: boolean,
  ): Promise<unknown> {
    return this.#send(timeoutMs, durability, (options) =>
      this.collection.findOneAndUpdate(filter, update, {
        ...options,
        upsert,
        returnDocument: 'after',
        includeResultMetadata: false,
        projection: SHOWN,
      }),
    )
  }

  #send<T>(timeoutMs: number, durability: Durability, send: (options: object) => Promise<T>): Promise<T> {
    return bounded(this.#deadlines, timeoutMs, (bounds) => {
      if (durability === 'primary') return send({ ...bounds, writeConcern: { w: 1 } })
      return this.#durable.send(
        ({ deployment, inSession }) =>
          send({ ...bounds, ...inSession, writeConcern: durableWriteConcern(deployment, bounds) }),
        bounds,
      )
    })
  }
}

/**
 * A write counts when a majority of the members has it in their journals. A statement that changes nothing waits until a
 * majority has everything that the primary did before it. So a primary that was replaced and does not know it yet acknowledges
 * no grant and no extension, not even a repeated one; it can only answer that a lease is held by others, or has ended.
 */
export function durableWriteConcern(deployment: Deployment, { maxTimeMS }: RequestBounds): object {
  return deployment === 'alone' ? JOURNALED : { w: 'majority', j: true, wtimeoutMS: maxTimeMS }
}

function resourcesOf(leases: readonly OwnedLease[]): readonly string[] {
  return leases.flatMap(({ resources }) => resources)
}

function allOwned(leases: readonly OwnedLease[]): object {
  return ownedBy(
    resourcesOf(leases),
    leases.map(({ owner }) => owner),
  )
}

const READ = { sort: { _id: 1 }, readConcern: { level: 'local' } }

/**
 * How values are decoded, whatever the client's own options are: 64-bit numbers as Long, because JavaScript rounds numbers from
 * 2^53 on. Not as bigint: the driver (7.8) keeps a 64-bit number of an error response for its monitoring. When a primary steps
 * down, the driver throws in a timer of its own because it does not expect a bigint there, and that ends the process.
 */
export const PLAIN = { promoteLongs: false, useBigInt64: false, promoteValues: true, raw: false }

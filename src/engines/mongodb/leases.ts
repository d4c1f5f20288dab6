import type { Deadlines } from '../../deadlines.ts'
import type { MongoCollection, MongoDb } from './client.ts'
import { extended, FREED, live, mine, passOn, raised, SHOWN, shownOrThrow, take, type Shown } from './documents.ts'
import { codeOf, within, type Bounds } from './requests.ts'

/** A lease as far as its documents know it. */
export interface Held {
  readonly resources: readonly string[]
  readonly owner: string
}

/** Whose acknowledgement a write waits for. */
type Durability = 'majority' | 'primary'

/** Another client has just made the document; it is there now and stays, so the second try finds it. */
const DUPLICATE_KEY = 11_000
const MOST_DUPLICATES = 5

/** The steps of the protocol on the collection, each with a deadline, and their answers in words. */
export class Leases {
  readonly collection: MongoCollection
  readonly #db: MongoDb
  readonly #name: string
  readonly #deadlines: Deadlines

  constructor(db: MongoDb, name: string, deadlines: Deadlines) {
    this.#db = db
    this.#name = name
    this.#deadlines = deadlines
    this.collection = db.collection(name, {
      // Whatever the client was told: a member that lags behind would show leases that are over.
      readPreference: 'primary',
      ...PLAIN,
    })
  }

  /** One attempt at one resource: what its document says afterwards. */
  async take(
    resource: string,
    owner: string,
    ttlMs: number,
    durability: Durability,
    timeoutMs: number,
  ): Promise<Shown> {
    for (let duplicates = 0; ; duplicates++) {
      try {
        const document = await this.#findOneAndUpdate(
          { _id: resource },
          take(owner, ttlMs),
          durability,
          timeoutMs,
          true,
        )
        return shownOrThrow(document)
      } catch (error) {
        if (codeOf(error) !== DUPLICATE_KEY || duplicates >= MOST_DUPLICATES) throw error
      }
    }
  }

  /** Undefined if it was not the old owner's. */
  async passOn(
    resource: string,
    from: string,
    next: { readonly owner: string; readonly ttlMs: number },
    durability: Durability,
    timeoutMs: number,
  ): Promise<Shown | undefined> {
    const update = passOn(next.owner, next.ttlMs)
    const document = await this.#findOneAndUpdate(mine([resource], [from]), update, durability, timeoutMs, false)
    return document === null ? undefined : shownOrThrow(document)
  }

  /** True if every one of these leases was held in full, and has its ttl again. */
  async extend(leases: readonly Held[], ttlMs: number, timeoutMs: number): Promise<boolean> {
    return this.#updateMine(leases, extended(ttlMs), 'majority', timeoutMs)
  }

  /** The same, and its counters are at least `token` now. */
  async raise(lease: Held, token: bigint, ttlMs: number, timeoutMs: number): Promise<boolean> {
    return this.#updateMine([lease], raised(token, ttlMs), 'majority', timeoutMs)
  }

  /** True if it was held in full. */
  async free(lease: Held, durability: Durability, timeoutMs: number): Promise<boolean> {
    return this.#updateMine([lease], FREED, durability, timeoutMs)
  }

  /** Whatever of these resources one of the owners has. */
  async clear(resources: readonly string[], owners: readonly string[], timeoutMs: number): Promise<void> {
    // The primary's word is enough: what it forgets in a failover ends with its ttl.
    await this.#send(timeoutMs, 'primary', (options) =>
      this.collection.updateMany(mine(resources, owners), FREED, options),
    )
  }

  /** What is held, of these resources or of all. */
  async *look(resources: readonly string[] | undefined, timeoutMs: number): AsyncGenerator<Shown> {
    const controller = new AbortController()
    // What the primary knows, also what it has not told a majority yet: nothing is granted on a look alone.
    const options = { ...READ, maxTimeMS: Math.ceil(timeoutMs), signal: controller.signal }
    const cursor = this.collection.find(live(resources), options)
    try {
      for (;;) {
        const document = await within(this.#deadlines, timeoutMs, () => cursor.next())
        if (document === null) return
        yield shownOrThrow(document)
      }
    } catch (error) {
      controller.abort(error)
      throw error
    } finally {
      // One that can't be closed is ended by its server, after it was idle for a while.
      cursor.close().catch(() => undefined)
    }
  }

  /** False if the collection was there already. */
  async create(timeoutMs: number): Promise<boolean> {
    const ask = (command: object): Promise<object> =>
      within(this.#deadlines, timeoutMs, ({ signal }) => this.#db.command(command, { ...PLAIN, signal }))
    const listed = await ask({ listCollections: 1, filter: { name: this.#name }, nameOnly: true })
    const { cursor } = listed as { cursor: { firstBatch: readonly unknown[] } }
    if (cursor.firstBatch.length > 0) return false
    await ask({ create: this.#name, writeConcern: { w: 'majority' } })
    return true
  }

  /**
   * One statement for any number of leases. It says how many documents matched, not which; that is enough to know that
   * all did. An owner belongs to one acquisition, so it never matches a resource of another lease in the list.
   */
  async #updateMine(
    leases: readonly Held[],
    update: object[],
    durability: Durability,
    timeoutMs: number,
  ): Promise<boolean> {
    const resources = leases.flatMap((lease) => lease.resources)
    const owners = leases.map(({ owner }) => owner)
    const { matchedCount } = await this.#send(timeoutMs, durability, (options) =>
      // The driver repeats an update of one document by itself after a failover, of many it does not.
      resources.length === 1
        ? this.collection.updateOne(mine(resources, owners), update, options)
        : this.collection.updateMany(mine(resources, owners), update, options),
    )
    return matchedCount === resources.length
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
    return within(this.#deadlines, timeoutMs, (bounds) =>
      send({ ...bounds, writeConcern: writeConcern(durability, bounds) }),
    )
  }
}

/**
 * A majority of the members has it, in their journals. A statement that changes nothing waits until a majority has all that
 * the primary had done before it. So a primary that was replaced and does not know it yet acknowledges no grant and no
 * extension, not even a second time; all it may say is that something is held by others, or gone.
 */
export function writeConcern(durability: Durability, { maxTimeMS }: Bounds): object {
  return durability === 'majority' ? { w: 'majority', j: true, wtimeoutMS: maxTimeMS } : { w: 1 }
}

const READ = { projection: SHOWN, sort: { _id: 1 }, readConcern: { level: 'local' } }

/**
 * How values come, whatever the client was told: 64-bit numbers as Long, since numbers would be rounded from 2^53 on. Not as
 * bigint: the driver (7.8) keeps a 64-bit number of an error answer for its monitoring and, when a primary steps down, throws
 * in a timer of its own because it is none that it knows, which ends the process.
 */
export const PLAIN = { promoteLongs: false, useBigInt64: false, promoteValues: true, raw: false }

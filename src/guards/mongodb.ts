import { sleep } from '../clock.ts'
import { shown } from '../duration.ts'
import { DurableWrites } from '../engines/mongodb/durable-writes.ts'
import { hasMethods, property, whatCame } from '../engines/shared/shape.ts'
import { endedByWork } from '../engines/shared/sql/transaction.ts'
import { GuardError } from '../errors.ts'
import { fencedTransaction } from './fenced-transaction.ts'
import {
  fencedOrThrow,
  passes,
  GuardContext,
  StoreGuard,
  whileHeld,
  type Fence,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'
import {
  durably,
  errorCode,
  FencedCollection,
  isDuplicateKey,
  MAJORITY,
  type CollectionLike,
  type FencedDocuments,
} from './mongodb-documents.ts'
import { fenceOf } from './rows.ts'

/** A `Db` of mongodb. */
export interface MongoDbLike<Session> {
  collection(name: string): unknown
  readonly client: { startSession(): Session }
}

export interface MongodbGuardOptions extends GuardOptions {
  /** Where the fences are, one document a resource. Default `ringfence_guard`. */
  collection?: string
}

/**
 * The fences are documents of their own, checked and raised in the transaction that writes; that needs a replica set or
 * a sharded cluster. Without one there is `documents`, where every document carries its own fence.
 */
export interface MongodbGuard<Session> extends Guard {
  /**
   * Opens a transaction, raises the fence, runs the work in it and commits, by majority. Pass the session to every read and
   * write of the work, or they are outside of the transaction. The work runs once: if its own operations conflict, it fails.
   * It is rolled back, with `LeaseLostError`, if the lease is over when the work is done.
   */
  transaction<T>(lease: Fenced, work: (session: Session) => T | Promise<T>): Promise<T>
  /** The same in a transaction that is already open. When it rejects, abort the transaction. */
  within(session: Session, lease: Fenced): Promise<void>
  /** Documents that carry their own fence: it is checked and raised by the update that writes the document. */
  documents<Document>(collection: CollectionLike<Document>): FencedDocuments<Document>
}

/** A guard for MongoDB. Takes a `Db` of mongodb. */
export function mongodbGuard<Session>(
  db: MongoDbLike<Session>,
  options: MongodbGuardOptions = {},
): MongodbGuard<Session> {
  return new MongodbStoreGuard(db, options)
}

interface DriverSession {
  inTransaction(): boolean
  startTransaction(options: object): void
  commitTransaction(): Promise<unknown>
  abortTransaction(): Promise<unknown>
  endSession(): Promise<unknown>
}

interface FenceCollection {
  updateOne(filter: object, update: object, options: object): Promise<unknown>
  findOne(filter: object, options: object): Promise<unknown>
}

/** An accepted write must survive a failover, and a read must see the newest version. */
const DURABLE = { ...MAJORITY, readPreference: 'primary' }

class MongodbStoreGuard<S> extends StoreGuard implements MongodbGuard<S> {
  readonly #context: GuardContext
  readonly #db: MongoDbLike<S>
  readonly #fences: FenceCollection
  readonly #durable: DurableWrites
  /** By the client that a collection belongs to. */
  readonly #durableOf = new WeakMap<object, DurableWrites>()

  constructor(db: MongoDbLike<S>, options: MongodbGuardOptions) {
    const context = new GuardContext('mongodb', options, ['collection'])
    super(context)
    this.#context = context
    if (!hasMethods(db, 'collection') || !hasMethods(property(db, 'client'), 'startSession')) {
      throw new TypeError(`db: expected a Db of mongodb (client.db()), got ${whatCame(db)}`)
    }
    const { collection = 'ringfence_guard' } = options
    if (typeof collection !== 'string' || collection === '') {
      throw new TypeError(`collection: expected a name, got ${shown(collection)}`)
    }
    this.#db = db
    this.#durable = new DurableWrites(db)
    this.#durableOf.set(db.client, this.#durable)
    const open = db.collection.bind(db) as (name: string, options: object) => unknown
    this.#fences = open(collection, DURABLE) as FenceCollection
  }

  async transaction<T>(lease: Fenced, work: (session: S) => T | Promise<T>): Promise<T> {
    const fenced = fencedOrThrow(lease)
    if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
    return this.#transaction(fenced, whileHeld(lease, work))
  }

  async within(session: S, lease: Fenced): Promise<void> {
    const fenced = fencedOrThrow(lease)
    if (!hasMethods(session, 'inTransaction') || !(session as unknown as DriverSession).inTransaction()) {
      throw new TypeError(`session: expected a session with an open transaction, got ${whatCame(session)}`)
    }
    await this.#context.answered(fenced.resources, this.#raiseEach(fenced, session))
  }

  documents<Document>(collection: CollectionLike<Document>): FencedDocuments<Document> {
    return new FencedCollection(collection, this.#context, this.#durableFor(collection))
  }

  /** The collection may be on other servers than the fences. */
  #durableFor(collection: unknown): DurableWrites {
    const db = property(collection, 'db')
    const client = property(db, 'client')
    if (typeof client !== 'object' || client === null) return new DurableWrites(undefined)
    const durable = this.#durableOf.get(client) ?? new DurableWrites(db)
    this.#durableOf.set(client, durable)
    return durable
  }

  async raise(lease: Fenced, from?: string): Promise<void> {
    // One document is atomic by itself, also without a replica set; several are raised all or none.
    if (lease.resources.length > 1) return this.#transaction(lease, () => undefined, from)
    await this.#context.answered(lease.resources, this.#raiseOne(lease, lease.resources[0]!, { from }))
  }

  #transaction<T>(lease: Fenced, work: (session: S) => T | Promise<T>, from?: string): Promise<T> {
    return fencedTransaction<S, T>(this.#context, lease, {
      open: (inside) => this.#open(lease, inside),
      raise: (session) => this.#raiseEach(lease, session, from),
      work,
      mayTryAgain: async (error) => {
        if (!hasLabel(error, 'TransientTransactionError') && !isDuplicateKey(error)) return false
        // The server does not wait for the other transaction: it refuses at once.
        await sleep(this.#context.clock, SHORTEST_PAUSE_MS * (1 + this.#context.random.fraction()))
        return true
      },
    })
  }

  async #open<T>(lease: Fenced, inside: (session: S) => Promise<T>): Promise<T> {
    const handle = this.#db.client.startSession()
    const session = handle as DriverSession
    try {
      // The snapshot is taken with the first operation, on the fence. If another process raises it after that, one of us fails.
      session.startTransaction({ readConcern: { level: 'snapshot' }, ...DURABLE })
      const ours = property(session, 'transaction')
      const result = await inside(handle)
      // The driver makes an object of its own for each transaction.
      if (!session.inTransaction() || property(session, 'transaction') !== ours) throw endedByWork()
      await commit(session).catch((error: unknown) => {
        throw error instanceof TypeError ? unknownOutcome(lease, error) : error
      })
      return result
    } catch (error) {
      if (session.inTransaction()) await aborted(session)
      throw needsReplicaSet(error) ? standalone(lease, error) : error
    } finally {
      await session.endSession()
    }
  }

  async #raiseEach(lease: Fenced, session: S, from?: string): Promise<void> {
    for (const resource of lease.resources) await this.#raiseOne(lease, resource, { session, from })
  }

  /** Only a fence that lets the lease pass is found; where there is another one, the upsert fails on its `_id`. */
  async #raiseOne(
    lease: Fenced,
    resource: string,
    { session, from }: { session?: S; from?: string | undefined },
  ): Promise<void> {
    const { token, engine } = lease
    // A number that grows, so that every raise is a write: one that changes nothing would not be in conflict with that of
    // another transaction, which could then commit after a newer holder has entered.
    const raise = { $max: { token }, $inc: { raises: 1 } }
    const take = { $set: { engine, token }, $inc: { raises: 1 } }
    const write = (filter: object, update: object, options: object = {}): Promise<unknown> =>
      session === undefined
        ? this.#durable.send((durable) => this.#fences.updateOne(filter, update, { ...options, ...durably(durable) }))
        : this.#fences.updateOne(filter, update, { ...options, session })
    for (;;) {
      try {
        if (from !== undefined) {
          const taken = await write({ _id: resource, engine: from }, take)
          if (Number(property(taken, 'matchedCount')) > 0) return
        }
        const passing = { _id: resource, engine, token: { $lte: token } }
        await write(passing, raise, { upsert: true })
        return
      } catch (error) {
        if (!isDuplicateKey(error)) throw error
        const seen = await this.#look(resource)
        if (!passes(lease, seen, from)) throw this.#context.refusal(lease, resource, seen!)
        // Another process has created it at the same moment. If we are in a transaction, that ended it.
        if (session !== undefined) throw error
      }
    }
  }

  async #look(resource: string): Promise<Fence | undefined> {
    // As text: the driver turns numbers of 64 bits into doubles.
    const projection = { engine: 1, token: { $toString: '$token' } }
    const found = await this.#fences.findOne({ _id: resource }, { projection })
    return found === null ? undefined : fenceOf(found as Record<string, unknown>)
  }
}

const SHORTEST_PAUSE_MS = 5

async function commit(session: DriverSession): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await session.commitTransaction()
      return
    } catch (error) {
      // Committing the same transaction twice is one commit. The caller does not wait beyond the deadline.
      if (!hasLabel(error, 'UnknownTransactionCommitResult') || tries === MOST_COMMITS) throw error
    }
  }
}

/** The driver itself sends each commit twice. */
const MOST_COMMITS = 3

/** The driver may fail by a mistake of its own when the primary goes away in the middle of a commit. */
function unknownOutcome({ resources }: Fenced, cause: TypeError): GuardError {
  return new GuardError(`the commit failed (${cause.message}): whether it took effect is unknown`, resources, { cause })
}

async function aborted(session: DriverSession): Promise<void> {
  try {
    await session.abortTransaction()
  } catch {
    // The server ends it by itself. The error that led here is the one to report.
  }
}

function hasLabel(error: unknown, label: string): boolean {
  return hasMethods(error, 'hasErrorLabel') && (error as { hasErrorLabel(label: string): boolean }).hasErrorLabel(label)
}

/** The driver replaces the server's message by a hint about its own options. */
function needsReplicaSet(error: unknown): boolean {
  return [error, property(error, 'originalError')].some(
    (one) => errorCode(one) === 20 && String(property(one, 'message')).includes('replica set'),
  )
}

function standalone({ resources }: Fenced, cause: unknown): GuardError {
  const how = 'use documents(), or a lease on one resource with enter()'
  return new GuardError(`transactions of MongoDB need a replica set; without one, ${how}`, resources, {
    cause,
    transient: false,
  })
}

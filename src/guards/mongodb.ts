import { sleep } from '../clock.ts'
import { shown } from '../duration.ts'
import { GuardError } from '../errors.ts'
import { systemRandom } from '../random.ts'
import { fencedTransaction } from './fenced-transaction.ts'
import {
  fencedOrThrow,
  givingWay,
  passes,
  Post,
  type Fence,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'
import {
  errorCode,
  FencedCollection,
  isDuplicateKey,
  type CollectionLike,
  type FencedDocuments,
} from './mongodb-documents.ts'
import { fenceOf, hasMethods, property, whatCame } from './rows.ts'

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
   * Opens a transaction, raises the fence, runs the work in it and commits, by majority. Every read and write of the work
   * must be given the session, or it is outside of the transaction. The work runs once: a conflict of its own operations is
   * its error.
   */
  transaction<T>(lease: Fenced, work: (session: Session) => T | Promise<T>): Promise<T>
  /** The same in a transaction that is open already; when it rejects, abort. */
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

interface Session {
  inTransaction(): boolean
  startTransaction(options: object): void
  commitTransaction(): Promise<unknown>
  abortTransaction(): Promise<unknown>
  endSession(): Promise<unknown>
}

interface Fences {
  updateOne(filter: object, update: object, options: object): Promise<unknown>
  findOne(filter: object, options: object): Promise<unknown>
}

/** What is accepted must outlive a failover, and what is read must be the newest. */
const DURABLE = { writeConcern: { w: 'majority' }, readPreference: 'primary' }

class MongodbStoreGuard<S> implements MongodbGuard<S> {
  readonly #post: Post
  readonly #db: MongoDbLike<S>
  readonly #fences: Fences

  constructor(db: MongoDbLike<S>, options: MongodbGuardOptions) {
    this.#post = new Post('mongodb', options, ['collection'])
    if (!hasMethods(db, 'collection') || !hasMethods(property(db, 'client'), 'startSession')) {
      throw new TypeError(`db: expected a Db of mongodb (client.db()), got ${whatCame(db)}`)
    }
    const { collection = 'ringfence_guard' } = options
    if (typeof collection !== 'string' || collection === '') {
      throw new TypeError(`collection: expected a name, got ${shown(collection)}`)
    }
    this.#db = db
    const open = db.collection.bind(db) as (name: string, options: object) => unknown
    this.#fences = open(collection, DURABLE) as Fences
  }

  get rejections(): number {
    return this.#post.rejections
  }

  async enter(lease: Fenced): Promise<void> {
    await this.#enter(fencedOrThrow(lease))
  }

  async adopt(lease: Fenced, from: string): Promise<void> {
    const fenced = fencedOrThrow(lease)
    await this.#enter(fenced, givingWay(from, fenced))
  }

  async transaction<T>(lease: Fenced, work: (session: S) => T | Promise<T>): Promise<T> {
    const fenced = fencedOrThrow(lease)
    if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
    return this.#transaction(fenced, work)
  }

  async within(session: S, lease: Fenced): Promise<void> {
    const fenced = fencedOrThrow(lease)
    if (!hasMethods(session, 'inTransaction') || !(session as unknown as Session).inTransaction()) {
      throw new TypeError(`session: expected a session with an open transaction, got ${whatCame(session)}`)
    }
    await this.#post.answered(fenced.resources, this.#raiseAll(fenced, session))
  }

  documents<Document>(collection: CollectionLike<Document>): FencedDocuments<Document> {
    return new FencedCollection(collection, this.#post)
  }

  async #enter(lease: Fenced, from?: string): Promise<void> {
    // One document is atomic by itself, also without a replica set; several are raised all or none.
    if (lease.resources.length > 1) return this.#transaction(lease, () => undefined, from)
    await this.#post.answered(lease.resources, this.#raise(lease, lease.resources[0]!, { from }))
  }

  #transaction<T>(lease: Fenced, work: (session: S) => T | Promise<T>, from?: string): Promise<T> {
    return fencedTransaction<S, T>(this.#post, lease, {
      open: (inside) => this.#open(lease, inside),
      raise: (session) => this.#raiseAll(lease, session, from),
      work,
      mayTryAgain: async (error) => {
        if (!hasLabel(error, 'TransientTransactionError') && !isDuplicateKey(error)) return false
        // The server does not let us wait for the other transaction: it refuses at once.
        await sleep(this.#post.clock, SHORTEST_PAUSE_MS * (1 + systemRandom.fraction()))
        return true
      },
    })
  }

  async #open<T>(lease: Fenced, inside: (session: S) => Promise<T>): Promise<T> {
    const handle = this.#db.client.startSession()
    const session = handle as Session
    try {
      // The snapshot is that of the first operation: of the fence. If somebody raises it after that, one of us fails.
      session.startTransaction({ readConcern: { level: 'snapshot' }, ...DURABLE })
      const result = await inside(handle)
      await commit(session)
      return result
    } catch (error) {
      if (session.inTransaction()) await aborted(session)
      throw needsReplicaSet(error) ? standalone(lease, error) : error
    } finally {
      await session.endSession()
    }
  }

  async #raiseAll(lease: Fenced, session: S, from?: string): Promise<void> {
    for (const resource of lease.resources) await this.#raise(lease, resource, { session, from })
  }

  /** Only a fence that lets the lease pass is found; where there is another one, the upsert fails on its `_id`. */
  async #raise(
    lease: Fenced,
    resource: string,
    { session, from }: { session?: S; from?: string | undefined },
  ): Promise<void> {
    const { token, engine } = lease
    // A number that grows, so that every raise is a write: one that changes nothing would not be in conflict with that of
    // another transaction, which could then commit after a newer holder has entered.
    const raise = { $max: { token }, $inc: { raises: 1 } }
    const take = { $set: { engine, token }, $inc: { raises: 1 } }
    const inSession = session === undefined ? {} : { session }
    for (;;) {
      try {
        if (from !== undefined) {
          const taken = await this.#fences.updateOne({ _id: resource, engine: from }, take, inSession)
          if (Number(property(taken, 'matchedCount')) > 0) return
        }
        const passing = { _id: resource, engine, token: { $lte: token } }
        await this.#fences.updateOne(passing, raise, { upsert: true, ...inSession })
        return
      } catch (error) {
        if (!isDuplicateKey(error)) throw error
        const seen = await this.#look(resource)
        if (!passes(lease, seen, from)) throw this.#post.refusal(lease, resource, seen!)
        // Somebody else has made it at the same moment. In a transaction, that ended ours.
        if (session !== undefined) throw error
      }
    }
  }

  async #look(resource: string): Promise<Fence | undefined> {
    // As text: the driver makes numbers of 64 bits doubles.
    const projection = { engine: 1, token: { $toString: '$token' } }
    const found = await this.#fences.findOne({ _id: resource }, { projection })
    return found === null ? undefined : fenceOf(found as Record<string, unknown>)
  }
}

const SHORTEST_PAUSE_MS = 5

async function commit(session: Session): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await session.commitTransaction()
      return
    } catch (error) {
      // Committing the same transaction twice is one commit. The caller stops waiting at the deadline.
      if (!hasLabel(error, 'UnknownTransactionCommitResult') || tries === MOST_COMMITS) throw error
    }
  }
}

/** The driver itself sends each of them twice. */
const MOST_COMMITS = 3

async function aborted(session: Session): Promise<void> {
  try {
    await session.abortTransaction()
  } catch {
    // The server ends it by itself; the error that led here is the one to tell.
  }
}

function hasLabel(error: unknown, label: string): boolean {
  return hasMethods(error, 'hasErrorLabel') && (error as { hasErrorLabel(label: string): boolean }).hasErrorLabel(label)
}

/** The driver puts a hint about its own options in the place of the server's words. */
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

import { optionsOrThrow } from '../arguments.ts'
import { sleep } from '../clock.ts'
import { shown } from '../duration.ts'
import { DurableWrites } from '../engines/mongodb/durable-writes.ts'
import { hasMethods, property, whatCame } from '../engines/shared/shape.ts'
import { endedByWork } from '../engines/shared/sql/transaction.ts'
import { GuardError, messageOf } from '../errors.ts'
import { resourceName } from '../options.ts'
import { runLimit, shortMessage, type RecordedRun, type Run, type RunsOptions, type RunStore } from '../runs.ts'
import { effectOf, keepMsOf, keyOrThrow, resultText, unknownEffect } from './effect.ts'
import type { Effect, EffectOptions, EffectWork, StoredEffect } from './effect.ts'
import { fencedTransaction } from './fenced-transaction.ts'
import {
  fencedOrThrow,
  passes,
  GuardContext,
  StoreGuard,
  untrimmed,
  whileHeld,
  type Fence,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'
import { MongodbCollections } from './mongodb-collections.ts'
import {
  durably,
  errorCode,
  FencedCollection,
  isDuplicateKey,
  MAJORITY,
  type CollectionLike,
  type FencedDocuments,
} from './mongodb-documents.ts'
import { MongodbEffects, MongodbRuns, type RecordCollection } from './mongodb-records.ts'
import { fenceOf } from './rows.ts'

/** A `Db` of mongodb. */
export interface MongoDbLike<Session> {
  collection(name: string): unknown
  readonly client: { startSession(): Session }
}

/** Options of `mongodbGuard`. */
export interface MongodbGuardOptions extends GuardOptions {
  /**
   * Where the fences are, one document a resource. Default `ringfence_guard`. What `once` records is in a collection of the same
   * name with `_once` behind it, and the runs of jobs in one with `_runs`.
   */
  collection?: string
}

/**
 * The fences are documents of their own, checked and raised in the transaction that writes; that needs a replica set or
 * a sharded cluster. Without one there is `documents`, where every document carries its own fence.
 */
// oxlint-disable-next-line typescript/no-explicit-any -- a guard of any driver, whose work says itself what it gets
export interface MongodbGuard<Session = any> extends Guard, RunStore {
  /**
   * Opens a transaction, raises the fence, runs the work in it and commits, by majority. Pass the session to every read and
   * write of the work, or they are outside of the transaction. The work runs once: if its own operations conflict, it fails.
   * It is rolled back, with `LeaseLostError`, if the lease is over when the work is done.
   */
  transaction<T>(lease: Fenced, work: (session: Session) => T | Promise<T>): Promise<T>
  /**
   * As `transaction`, and the key, the token and the result of the work are recorded in the same transaction. A repeat with the
   * same key, by any process, at any time, gets that result and does not run the work. If the work rejects, nothing is recorded.
   */
  once<T>(
    lease: Fenced,
    key: string,
    work: ((session: Session) => T | Promise<T>) & EffectWork<T>,
    options?: EffectOptions,
  ): Promise<Effect<T>>
  /** As `transaction`, in a transaction that is already open. When it rejects, abort the transaction. */
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
  readonly #name: string
  readonly #collections: MongodbCollections
  readonly #fences: FenceCollection
  readonly #effects: MongodbEffects
  readonly #runs: MongodbRuns
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
    this.#name = collection
    this.#collections = new MongodbCollections(db, MAJORITY)
    this.#durable = new DurableWrites(db)
    this.#durableOf.set(db.client, this.#durable)
    const open = db.collection.bind(db) as (name: string, options: object) => unknown
    this.#fences = open(collection, DURABLE) as FenceCollection
    this.#effects = new MongodbEffects(open(`${collection}_once`, DURABLE) as RecordCollection)
    this.#runs = new MongodbRuns(open(`${collection}_runs`, DURABLE) as RecordCollection)
  }

  async transaction<T>(lease: Fenced, work: (session: S) => T | Promise<T>): Promise<T> {
    const fenced = fencedOrThrow(lease)
    workOrThrow(work)
    return this.#transaction(fenced, { work: whileHeld(lease, work) })
  }

  async once<T>(
    lease: Fenced,
    key: string,
    work: (session: S) => T | Promise<T>,
    options: EffectOptions = {},
  ): Promise<Effect<T>> {
    const fenced = fencedOrThrow(lease)
    keyOrThrow(key)
    workOrThrow(work)
    optionsOrThrow(options, ['keep'])
    const [effects, keepMs] = [this.#effects, keepMsOf(options)]
    let stored: StoredEffect | undefined
    let hasRun = false
    try {
      return await this.#transaction<Effect<T>>(fenced, {
        before: async () => {
          await this.#collections.create([this.#name, `${this.#name}_once`])
          if (keepMs !== undefined) await effects.index()
        },
        entered: async (session) => {
          stored = await effects.claimed(session as object, key, fenced)
        },
        work: async (session) => {
          if (stored !== undefined) return effectOf(stored, false)
          const result = resultText(await whileHeld(lease, work)(session))
          hasRun = true
          const finishing = effects.finished(session as object, key, { result, keepMs }).catch((error: unknown) => {
            throw isUndone(error) ? uncommitted(fenced, error) : error
          })
          return effectOf(await this.#context.answered(fenced.resources, finishing), true)
        },
      })
    } catch (error) {
      throw hasRun && isUnknown(error) ? unknownEffect(key, fenced, error) : error
    }
  }

  async recordRun(run: Run): Promise<void> {
    const message = shortMessage(run.message)
    await this.#ofRuns(this.#durable.send((durable) => this.#runs.record({ ...run, message }, durably(durable))))
    if (run.outcome === 'began') return
    const trimming = this.#durable.send((durable) => this.#runs.trim(run.job, durably(durable)))
    await this.#ofRuns(trimming).catch((error: unknown) => {
      throw untrimmed(error)
    })
  }

  async runs(job: string, options: RunsOptions = {}): Promise<readonly RecordedRun[]> {
    return this.#ofRuns(this.#runs.read(resourceName(job, 'job'), runLimit(options)))
  }

  #ofRuns<T>(answer: Promise<T>): Promise<T> {
    return this.#context.answered([], answer).catch((error: unknown) => {
      throw this.#context.failure([], error)
    })
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
    if (lease.resources.length > 1) return this.#transaction(lease, { work: () => undefined, from })
    await this.#context.answered(lease.resources, this.#raiseOne(lease, lease.resources[0]!, { from }))
  }

  #transaction<T>(lease: Fenced, terms: TransactionTerms<S, T>): Promise<T> {
    return fencedTransaction<S, T>(this.#context, lease, {
      prepare: () => (terms.before === undefined ? this.#collections.create([this.#name]) : terms.before()),
      open: (inside) => this.#open(lease, inside),
      raise: async (session) => {
        await this.#raiseEach(lease, session, terms.from)
        await terms.entered?.(session)
      },
      work: terms.work,
      mayTryAgain: async (error) => {
        if (!isUndone(error) && !isDuplicateKey(error)) return false
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
        if (error instanceof TypeError) throw unknownOutcome(lease, error)
        throw isUndone(error) ? uncommitted(lease, error) : error
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

interface TransactionTerms<S, T> {
  readonly work: (session: S) => T | Promise<T>
  readonly from?: string | undefined
  /** Before the transaction. Default: creates the collection of the fences. */
  readonly before?: () => Promise<void>
  /** In it, when the fences are raised. If it fails, it may be tried again in another transaction. */
  readonly entered?: (session: S) => Promise<void>
}

const SHORTEST_PAUSE_MS = 5

function workOrThrow(work: unknown): void {
  if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
}

/** The commit may have taken effect although it failed: the server did not say otherwise. */
function isUnknown(error: unknown): boolean {
  return hasLabel(error, 'UnknownTransactionCommitResult') || Number.isNaN(errorCode(error))
}

/** By the driver's specification: nothing of the transaction has taken effect, nor will it. */
function isUndone(error: unknown): boolean {
  return hasLabel(error, 'TransientTransactionError') && !hasLabel(error, 'UnknownTransactionCommitResult')
}

function uncommitted({ resources }: Fenced, cause: unknown): GuardError {
  const what = `nothing was committed, because the server has ended the transaction (${messageOf(cause)})`
  return new GuardError(`${what}; run the work again in a new one`, resources, { cause })
}

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
  return new GuardError(
    `the commit failed (${cause.message}): whether it took effect is unknown; look, or write by once() with a key, which can be repeated`,
    resources,
    { cause },
  )
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

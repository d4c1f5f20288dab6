import { objectOrThrow, optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import { JOURNALED, type DurableWrite, type DurableWrites } from '../engines/mongodb/durable-writes.ts'
import { hasMethods, property, whatCame } from '../engines/shared/shape.ts'
import { GuardError } from '../errors.ts'
import { fencedOrThrow, givingWay, passes, type Fence, type Fenced, type GuardContext } from './guard.ts'
import { fenceOf } from './rows.ts'

/** A `Collection` of mongodb. */
export interface CollectionLike<Document> {
  updateOne(filter: never, update: never, options?: never): Promise<unknown>
  findOne(filter: never, options?: never): Promise<unknown>
  findOneAndUpdate(filter: never, update: never): Promise<Document | null>
}

/** Options of an update of a fenced document. */
export interface UpdateOptions {
  /** Creates the document if there is none; the filter must then have an `_id`. */
  upsert?: boolean
  /** A session of the driver, to update in a transaction. */
  session?: object
}

/**
 * The fence is in the document, as `_fence: { token, engine }`. A document without one lets everybody pass. Outside of a
 * transaction, writes wait for a majority, or for the journal of a server without a replica set, regardless of the collection's
 * own write concern.
 */
export interface FencedDocuments<Document> {
  /** Raises the fence of the document and returns the document as it is then: the read that a later update is based on. */
  enter(lease: Fenced, filter: object): Promise<Document | null>
  /** Checks the fence, raises it and updates, in one operation. Returns how many documents were found: 1 or 0. */
  update(lease: Fenced, filter: object, update: object | readonly object[], options?: UpdateOptions): Promise<number>
  /** As `enter`, for a document that has a token of the engine `from`. */
  adopt(lease: Fenced, filter: object, from: string): Promise<Document | null>
}

interface DriverCollection {
  updateOne(filter: object, update: object, options: object): Promise<unknown>
  findOne(filter: object, options: object): Promise<unknown>
  findOneAndUpdate(filter: object, update: object, options: object): Promise<unknown>
}

const FIELD = '_fence'
/** Regardless of the collection's own options: a fence that a failover undoes lets an older holder in again. */
export const MAJORITY = { writeConcern: { w: 'majority' } }

/** Options of a write outside of a transaction. */
export function durably({ deployment, inSession }: DurableWrite): object {
  return { ...inSession, ...(deployment === 'alone' ? { writeConcern: JOURNALED } : MAJORITY) }
}

/** A document that changes this often between our two looks is written by software that ignores fences. */
const MOST_TRIES = 10

export class FencedCollection<Document> implements FencedDocuments<Document> {
  readonly #collection: DriverCollection
  readonly #context: GuardContext
  readonly #durable: DurableWrites

  constructor(collection: CollectionLike<Document>, context: GuardContext, durable: DurableWrites) {
    if (!hasMethods(collection, 'updateOne', 'findOne', 'findOneAndUpdate')) {
      throw new TypeError(`collection: expected a Collection of mongodb, got ${whatCame(collection)}`)
    }
    this.#collection = collection as unknown as DriverCollection
    this.#context = context
    this.#durable = durable
  }

  async enter(lease: Fenced, filter: object): Promise<Document | null> {
    return this.#enter(fencedOrThrow(lease), filter)
  }

  async adopt(lease: Fenced, filter: object, from: string): Promise<Document | null> {
    const fenced = fencedOrThrow(lease)
    return this.#enter(fenced, filter, givingWay(from, fenced))
  }

  async update(
    lease: Fenced,
    filter: object,
    update: object | readonly object[],
    options: UpdateOptions = {},
  ): Promise<number> {
    const fenced = fencedOrThrow(lease)
    objectOrThrow(filter, 'filter')
    optionsOrThrow(options, ['upsert', 'session'])
    const { upsert = false, session } = options
    // Where the fence refuses, nothing is found, and an upsert would create a second document unless its `_id` prevents that.
    if (upsert && !isPlain(property(filter, '_id'))) {
      throw new TypeError('filter: expected an _id to look for, because of upsert')
    }
    const inSession = session === undefined ? {} : { session }
    const raised = withFence(update, fenced)
    const write = (options: object): Promise<unknown> =>
      this.#collection.updateOne(passing(fenced, filter), raised, { upsert, ...options })
    return this.#guarded(fenced, filter, undefined, inSession, async () => {
      // A transaction has one write concern, that of its commit.
      const result = await (isInTransaction(session)
        ? write(inSession)
        : this.#durable.send((options) => write(durably(options)), { session }))
      const count = Number(property(result, 'matchedCount')) + Number(property(result, 'upsertedCount') ?? 0)
      return count === 0 ? undefined : count
    }).then((count) => count ?? 0)
  }

  async #enter(lease: Fenced, filter: object, from?: string): Promise<Document | null> {
    objectOrThrow(filter, 'filter')
    const { token, engine } = lease
    const fence = from === undefined ? withFence({}, lease) : { $set: { [FIELD]: { token, engine } } }
    const options = { returnDocument: 'after', projection: { [FIELD]: 0 }, includeResultMetadata: false }
    const found = await this.#guarded(lease, filter, from, {}, async () => {
      const document = await this.#durable.send((durable) =>
        this.#collection.findOneAndUpdate(passing(lease, filter, from), fence, { ...options, ...durably(durable) }),
      )
      return document ?? undefined
    })
    return (found ?? null) as Document | null
  }

  /** When the attempt finds nothing, a second look shows whether the fence refused it or there is no document. */
  async #guarded<T>(
    lease: Fenced,
    filter: object,
    from: string | undefined,
    inSession: object,
    attempt: () => Promise<T | undefined>,
  ): Promise<T | undefined> {
    const { resources } = lease
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      let duplicate: unknown
      try {
        const result = await this.#context.answered(resources, attempt())
        if (result !== undefined) return result
      } catch (error) {
        if (!isDuplicateKey(error)) throw error
        duplicate = error
      }
      // A duplicate key has ended the transaction, so the look cannot be in it.
      const seen = await this.#context.answered(resources, this.#look(filter, duplicate === undefined ? inSession : {}))
      if (seen === undefined && duplicate !== undefined) throw duplicate
      if (seen === undefined) return undefined
      if (!passes(lease, seen === 'open' ? undefined : seen, from))
        throw this.#context.refusal(lease, resources[0]!, seen as Fence)
    }
    throw new GuardError(
      'the document changed again and again: something else writes its fence; find out what, and try again',
      resources,
    )
  }

  async #look(filter: object, inSession: object): Promise<Fence | 'open' | undefined> {
    // As text: the driver turns numbers of 64 bits into doubles.
    const projection = { engine: `$${FIELD}.engine`, token: { $toString: `$${FIELD}.token` } }
    const found = await this.#collection.findOne(filter, { projection, readPreference: 'primary', ...inSession })
    if (found === null) return undefined
    const row = found as Record<string, unknown>
    return typeof row['token'] === 'string' ? fenceOf(row) : 'open'
  }
}

function isInTransaction(session: object | undefined): boolean {
  return hasMethods(session, 'inTransaction') && (session as { inTransaction(): boolean }).inTransaction()
}

export function isDuplicateKey(error: unknown): boolean {
  return errorCode(error) === 11_000
}

/** It may be a number of the driver's own type, depending on the driver's options. */
export function errorCode(error: unknown): number {
  return Number(property(error, 'code'))
}

function passing({ token, engine }: Fenced, filter: object, from?: string): object {
  const either: object[] = [
    { [FIELD]: { $exists: false } },
    { [`${FIELD}.engine`]: engine, [`${FIELD}.token`]: { $lte: token } },
  ]
  if (from !== undefined) either.push({ [`${FIELD}.engine`]: from })
  return { $and: [filter, { $or: either }] }
}

function withFence(update: object | readonly object[], { token, engine }: Fenced): object {
  if (Array.isArray(update)) {
    return [
      ...(update as object[]),
      { $set: { [FIELD]: { token: { $literal: token }, engine: { $literal: engine } } } },
    ]
  }
  objectOrThrow(update, 'update')
  const wrong = Object.keys(update).find((name) => !name.startsWith('$'))
  if (wrong !== undefined) {
    throw new TypeError(`update: expected operators such as $set, or a pipeline, got the field ${shown(wrong)}`)
  }
  const of = (operator: string): object => (property(update, operator) as object | undefined) ?? {}
  return {
    ...(update as object),
    $max: { ...of('$max'), [`${FIELD}.token`]: token },
    $set: { ...of('$set'), [`${FIELD}.engine`]: engine },
  }
}

/** A value to be equal to, not a condition. */
function isPlain(value: unknown): boolean {
  if (value === undefined) return false
  if (typeof value !== 'object' || value === null) return true
  return !Object.keys(value).some((name) => name.startsWith('$'))
}

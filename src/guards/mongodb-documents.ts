import { objectOrThrow, optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import { GuardError } from '../errors.ts'
import { fencedOrThrow, givingWay, passes, type Fence, type Fenced, type Post } from './guard.ts'
import { fenceOf, hasMethods, property, whatCame } from './rows.ts'

/** A `Collection` of mongodb. */
export interface CollectionLike<Document> {
  updateOne(filter: never, update: never, options?: never): Promise<unknown>
  findOne(filter: never, options?: never): Promise<unknown>
  findOneAndUpdate(filter: never, update: never): Promise<Document | null>
}

export interface UpdateOptions {
  /** Makes the document if there is none; the filter must then have an `_id`. */
  upsert?: boolean
  /** A session of the driver, to update in a transaction. */
  session?: object
}

/** The fence is in the document, as `_fence: { token, engine }`. A document without one lets everybody pass. */
export interface FencedDocuments<Document> {
  /** Raises the fence of the document, and gives the document as it is then: the read that a later update is based on. */
  enter(lease: Fenced, filter: object): Promise<Document | null>
  /** Checks the fence, raises it and updates, in one operation. Gives how many documents were found: 1 or 0. */
  update(lease: Fenced, filter: object, update: object | readonly object[], options?: UpdateOptions): Promise<number>
  /** As `enter`, for a document that has a token of the engine `from`. */
  adopt(lease: Fenced, filter: object, from: string): Promise<Document | null>
}

interface Collection {
  updateOne(filter: object, update: object, options: object): Promise<unknown>
  findOne(filter: object, options: object): Promise<unknown>
  findOneAndUpdate(filter: object, update: object, options: object): Promise<unknown>
}

const FIELD = '_fence'
/** A document that changes under our hands so often is written by something that knows no fences. */
const MOST_TRIES = 10

export class FencedCollection<Document> implements FencedDocuments<Document> {
  readonly #collection: Collection
  readonly #post: Post

  constructor(collection: CollectionLike<Document>, post: Post) {
    if (!hasMethods(collection, 'updateOne', 'findOne', 'findOneAndUpdate')) {
      throw new TypeError(`collection: expected a Collection of mongodb, got ${whatCame(collection)}`)
    }
    this.#collection = collection as unknown as Collection
    this.#post = post
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
    // Where the fence refuses, nothing is found, and an upsert makes a second document unless its `_id` forbids it.
    if (upsert && !isPlain(property(filter, '_id'))) {
      throw new TypeError('filter: expected an _id to look for, because of upsert')
    }
    const inSession = session === undefined ? {} : { session }
    const raised = withFence(update, fenced)
    return this.#guarded(fenced, filter, undefined, inSession, async () => {
      const result = await this.#collection.updateOne(passing(fenced, filter), raised, { upsert, ...inSession })
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
      const document = await this.#collection.findOneAndUpdate(passing(lease, filter, from), fence, options)
      return document ?? undefined
    })
    return (found ?? null) as Document | null
  }

  /** Nothing was found: because of the fence, or because there is nothing. A second look tells. */
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
        const result = await this.#post.answered(resources, attempt())
        if (result !== undefined) return result
      } catch (error) {
        if (!isDuplicateKey(error)) throw error
        duplicate = error
      }
      // A transaction has been ended by a duplicate key, and can't be asked.
      const seen = await this.#post.answered(resources, this.#look(filter, duplicate === undefined ? inSession : {}))
      if (seen === undefined && duplicate !== undefined) throw duplicate
      if (seen === undefined) return undefined
      if (!passes(lease, seen === 'open' ? undefined : seen, from))
        throw this.#post.refusal(lease, resources[0]!, seen as Fence)
    }
    throw new GuardError('the document changed again and again: something else writes its fence', resources)
  }

  async #look(filter: object, inSession: object): Promise<Fence | 'open' | undefined> {
    // As text: the driver makes numbers of 64 bits doubles.
    const projection = { engine: `$${FIELD}.engine`, token: { $toString: `$${FIELD}.token` } }
    const found = await this.#collection.findOne(filter, { projection, readPreference: 'primary', ...inSession })
    if (found === null) return undefined
    const row = found as Record<string, unknown>
    return typeof row['token'] === 'string' ? fenceOf(row) : 'open'
  }
}

export function isDuplicateKey(error: unknown): boolean {
  return errorCode(error) === 11_000
}

/** A number of the driver's own type, where it was told not to make plain ones. */
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

import { hasMethods } from '../engines/shared/shape.ts'
import { errorCode } from './mongodb-documents.ts'

interface CollectionsDb {
  listCollections(filter: object, options: object): { toArray(): Promise<readonly { readonly name: string }[]> }
  createCollection(name: string, options: object): Promise<unknown>
}

const NAMESPACE_EXISTS = 48
const UNAUTHORIZED = 13

/**
 * Creates collections before a transaction needs them. If several transactions created the same one, all but one would fail
 * with their commit, when the work is done.
 */
export class MongodbCollections {
  readonly #db: CollectionsDb | undefined
  readonly #options: object
  readonly #there = new Set<string>()

  /** A `Db` of the driver, and the options of a write. Of one that cannot be asked, all is taken to be there. */
  constructor(db: unknown, options: object) {
    this.#db = hasMethods(db, 'listCollections', 'createCollection') ? (db as unknown as CollectionsDb) : undefined
    this.#options = options
  }

  async create(names: readonly string[]): Promise<void> {
    const unknown = names.filter((name) => !this.#there.has(name))
    if (this.#db === undefined || unknown.length === 0) return
    // Names alone are listed without a lock, and of collections that this user may use without a right of its own.
    const options = { nameOnly: true, authorizedCollections: true, readPreference: 'primary' }
    const listed = await this.#db.listCollections({ name: { $in: unknown } }, options).toArray()
    const found = new Set(listed.map(({ name }) => name))
    for (const name of unknown) {
      if (!found.has(name)) await this.#createOne(this.#db, name)
      this.#there.add(name)
    }
  }

  async #createOne(db: CollectionsDb, name: string): Promise<void> {
    try {
      await db.createCollection(name, this.#options)
    } catch (error) {
      // A user without the right to create it may still write the first document, which creates it as well.
      if (![NAMESPACE_EXISTS, UNAUTHORIZED].includes(errorCode(error))) throw error
    }
  }
}

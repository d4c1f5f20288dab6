import { optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import { GuardError } from '../errors.ts'
import { columnFence, type ColumnFence, type ColumnOptions, type ColumnSyntax } from './column.ts'
import { fencedTransaction } from './fenced-transaction.ts'
import { fencedOrThrow, givingWay, Post, type Fenced, type Guard, type GuardOptions } from './guard.ts'
import type { Query, Refused } from './rows.ts'

export type Isolation = 'read committed' | 'repeatable read' | 'serializable'

export interface SqlGuardOptions extends GuardOptions {
  /** Where the fences are, one row a resource. Default `ringfence_guard`; may name a schema: `app.fences`. */
  table?: string
}

export interface TransactionOptions {
  /** Default: what the database does without a word. Every level is safe. */
  isolation?: Isolation
}

export interface SqlGuard<Transaction> extends Guard {
  /** The statement that creates the table, for a migration. Without one it is created when it is first missing. */
  readonly schema: string
  /** Creates the table unless it is there. */
  init(): Promise<void>
  /**
   * Opens a transaction, raises the fence, runs the work in it and commits. The fence's rows stay locked until then, so a
   * newer holder waits for this transaction and an older one is refused after it: nobody commits out of order. The work
   * runs once: a conflict of its own statements is its error, and the whole transaction is rolled back.
   */
  transaction<T>(
    lease: Fenced,
    work: (transaction: Transaction) => T | Promise<T>,
    options?: TransactionOptions,
  ): Promise<T>
  /**
   * The same in a transaction that is open already: raises the fence there; call it before the first read. When it rejects,
   * roll back. For a transaction of other software, give a function that runs a statement in it.
   */
  within(transaction: Transaction | RunStatement, lease: Fenced): Promise<void>
  /** The fence in two columns of the row that it protects, for single statements without a transaction. */
  column(lease: Fenced, options?: ColumnOptions): ColumnFence
}

/** Runs one statement with its parameters in an open transaction, and resolves to its rows or to `{ rows }`. */
export type RunStatement = (text: string, params: unknown[]) => Promise<unknown>

/**
 * A PGlite, or other software behind its two methods: `transaction` commits when the work resolves and rolls back when
 * it rejects; both kinds of `query` resolve to the rows or to `{ rows }`.
 */
export interface TransactionalLike<Transaction> {
  query(text: string, params?: unknown[]): Promise<unknown>
  transaction(work: (transaction: Transaction) => Promise<unknown>): Promise<unknown>
}

/** How to reach a database, whatever the driver. */
export interface Database<Transaction> {
  /** One statement in a transaction of its own. */
  query: Query
  /** A transaction on a connection that nobody else uses meanwhile: committed when the work resolves, else rolled back. */
  transaction<T>(
    isolation: Isolation | undefined,
    work: (transaction: Transaction, query: Query) => Promise<T>,
  ): Promise<T>
  /** How to run statements in a transaction that the user has opened. */
  within(transaction: Transaction | RunStatement): Query
}

export interface Dialect extends ColumnSyntax {
  readonly name: string
  schema(table: string): string
  /** What has to be there before the transaction begins. */
  prepare?(query: Query, table: string, lease: Fenced): Promise<void>
  /** In a transaction: locks the fences of a lease, and raises them if all of them let it pass. */
  raise(query: Query, table: string, lease: Fenced, from: string | undefined): Promise<readonly Refused[]>
  /** Rejects unless a transaction is open, and if it has read what is older than the fences. */
  raiseWithin(query: Query, table: string, lease: Fenced): Promise<readonly Refused[]>
  /** The statement failed because of another transaction; a new transaction may succeed. */
  isConflict(error: unknown): boolean
  isMissingTable(error: unknown): boolean
  /** Somebody else created the table at the same moment. */
  isCreated(error: unknown): boolean
}

export class SqlStoreGuard<Transaction> implements SqlGuard<Transaction> {
  readonly schema: string
  readonly #dialect: Dialect
  readonly #database: Database<Transaction>
  readonly #table: string
  readonly #post: Post

  constructor(dialect: Dialect, database: Database<Transaction>, options: SqlGuardOptions) {
    this.#post = new Post(dialect.name, options, ['table'])
    this.#dialect = dialect
    this.#database = database
    this.#table = quotedTable(options.table ?? 'ringfence_guard', dialect)
    this.schema = dialect.schema(this.#table)
  }

  get rejections(): number {
    return this.#post.rejections
  }

  async init(): Promise<void> {
    await this.#post.answered([], this.#create())
  }

  async enter(lease: Fenced): Promise<void> {
    await this.#run(fencedOrThrow(lease), { work: () => undefined })
  }

  async adopt(lease: Fenced, from: string): Promise<void> {
    const fenced = fencedOrThrow(lease)
    await this.#run(fenced, { work: () => undefined, from: givingWay(from, fenced) })
  }

  async transaction<T>(
    lease: Fenced,
    work: (transaction: Transaction) => T | Promise<T>,
    options: TransactionOptions = {},
  ): Promise<T> {
    const fenced = fencedOrThrow(lease)
    if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
    return this.#run(fenced, { work, isolation: isolationOf(options) })
  }

  async within(transaction: Transaction | RunStatement, lease: Fenced): Promise<void> {
    const fenced = fencedOrThrow(lease)
    const query = this.#database.within(transaction)
    try {
      const raising = this.#dialect.raiseWithin(query, this.#table, fenced)
      this.#refuse(fenced, await this.#post.answered(fenced.resources, raising))
    } catch (error) {
      if (!this.#dialect.isMissingTable(error)) throw error
      const how = 'nobody creates it in a transaction of yours: call init() before, or run schema'
      throw new GuardError(`there is no table ${this.#table}; ${how}`, fenced.resources, {
        cause: error,
        transient: false,
      })
    }
  }

  column(lease: Fenced, options: ColumnOptions = {}): ColumnFence {
    return columnFence(fencedOrThrow(lease), options, this.#dialect, this.#post)
  }

  #run<T>(
    lease: Fenced,
    terms: {
      readonly work: (transaction: Transaction) => T | Promise<T>
      readonly from?: string | undefined
      readonly isolation?: Isolation | undefined
    },
  ): Promise<T> {
    const [dialect, database, table] = [this.#dialect, this.#database, this.#table]
    return fencedTransaction<[Transaction, Query], T>(this.#post, lease, {
      prepare: async () => dialect.prepare?.(database.query, table, lease),
      open: (inside) => database.transaction(terms.isolation, (...opened) => inside(opened)),
      raise: async ([, query]) => this.#refuse(lease, await dialect.raise(query, table, lease, terms.from)),
      work: ([transaction]) => terms.work(transaction),
      mayTryAgain: async (error) => {
        if (dialect.isConflict(error)) return true
        if (!dialect.isMissingTable(error)) return false
        await this.#create()
        return true
      },
    })
  }

  async #create(): Promise<void> {
    try {
      await this.#database.query(this.schema, [])
    } catch (error) {
      if (!this.#dialect.isCreated(error)) throw error
    }
  }

  #refuse(lease: Fenced, refused: readonly Refused[]): void {
    const [first] = refused
    if (first !== undefined) throw this.#post.refusal(lease, first.resource, first.seen)
  }
}

const ISOLATIONS: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable']

function isolationOf(options: TransactionOptions): Isolation | undefined {
  optionsOrThrow(options, ['isolation'])
  const { isolation } = options
  if (isolation === undefined || ISOLATIONS.includes(isolation)) return isolation
  throw new TypeError(`isolation: expected '${ISOLATIONS.join("', '")}', got ${shown(isolation)}`)
}

function quotedTable(table: unknown, { quote }: Dialect): string {
  if (typeof table === 'string' && /^[a-z_][\w$]*(\.[a-z_][\w$]*)?$/i.test(table)) {
    return table.split('.').map(quote).join('.')
  }
  throw new TypeError(`table: expected a name, or a schema and a name with a dot between, got ${shown(table)}`)
}

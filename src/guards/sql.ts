import { optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import type { RunStatement, SqlQuery, TransactionalClient } from '../engines/shared/sql/client.ts'
import type { Isolation } from '../engines/shared/sql/transaction.ts'
import { GuardError } from '../errors.ts'
import { columnFence, type ColumnFence, type ColumnOptions, type ColumnSyntax } from './column.ts'
import { fencedTransaction } from './fenced-transaction.ts'
import {
  fencedOrThrow,
  GuardContext,
  StoreGuard,
  whileHeld,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'
import type { RefusedResource } from './rows.ts'

export interface SqlGuardOptions extends GuardOptions {
  /** Where the fences are, one row a resource. Default `ringfence_guard`; may name a schema: `app.fences`. */
  table?: string
}

export interface TransactionOptions {
  /** Default: the database's own default. Every level is safe. */
  isolation?: Isolation
}

export interface SqlGuard<Transaction> extends Guard {
  /** The statement that creates the table, for a migration. Without one, the guard creates it when it is first missing. */
  readonly schema: string
  /** Creates the table unless it is there. */
  init(): Promise<void>
  /**
   * Opens a transaction, raises the fence, runs the work in it and commits. The fence's rows stay locked until then, so a
   * newer holder waits for this transaction and an older one is refused after it: nobody commits out of order. The work
   * runs once: a conflict of its own statements is its error, and the whole transaction is rolled back. So it is, with
   * `LeaseLostError`, if the lease is over when the work is done.
   */
  transaction<T>(
    lease: Fenced,
    work: (transaction: Transaction) => T | Promise<T>,
    options?: TransactionOptions,
  ): Promise<T>
  /**
   * The same in a transaction that is already open: raises the fence there. Call it before the first read. When it rejects,
   * roll back. For a transaction of other software, pass a function that runs a statement in it.
   */
  within(transaction: Transaction | RunStatement, lease: Fenced): Promise<void>
  /** The fence in two columns of the row that it protects, for single statements without a transaction. */
  column(lease: Fenced, options?: ColumnOptions): ColumnFence
}

/** What is special about a database. */
export interface Dialect extends ColumnSyntax {
  readonly name: string
  schema(table: string): string
  /** How to run statements in a transaction that the user has opened. */
  queryWithin(transaction: unknown): SqlQuery
  /** Creates what has to be there before the transaction begins. */
  prepare?(query: SqlQuery, table: string, lease: Fenced): Promise<void>
  /** In a transaction: locks the fences of a lease, and raises them if all of them let it pass. */
  raise(query: SqlQuery, table: string, lease: Fenced, from: string | undefined): Promise<readonly RefusedResource[]>
  /** Rejects when no transaction is open, or when it has read data that is older than the fences. */
  raiseWithin(query: SqlQuery, table: string, lease: Fenced): Promise<readonly RefusedResource[]>
  /** The statement failed because of another transaction; a new transaction may succeed. */
  isConflict(error: unknown): boolean
  isMissingTable(error: unknown): boolean
  /** The database itself has said so: its code is for the caller, who may try again after a conflict. */
  isAnswer(error: unknown): boolean
  /** Somebody else created the table at the same moment. */
  isCreated(error: unknown): boolean
}

export class SqlStoreGuard<Transaction> extends StoreGuard implements SqlGuard<Transaction> {
  readonly schema: string
  readonly #dialect: Dialect
  readonly #client: TransactionalClient
  readonly #table: string
  readonly #context: GuardContext

  constructor(dialect: Dialect, client: TransactionalClient, options: SqlGuardOptions) {
    const context = new GuardContext(dialect.name, options, ['table'])
    super(context)
    this.#context = context
    this.#dialect = dialect
    this.#client = client
    this.#table = quotedTable(options.table ?? 'ringfence_guard', dialect)
    this.schema = dialect.schema(this.#table)
  }

  async init(): Promise<void> {
    try {
      await this.#context.answered([], this.#create())
    } catch (error) {
      throw this.#failure([], error)
    }
  }

  async raise(lease: Fenced, from?: string): Promise<void> {
    await this.#run(lease, { work: () => undefined, from })
  }

  async transaction<T>(
    lease: Fenced,
    work: (transaction: Transaction) => T | Promise<T>,
    options: TransactionOptions = {},
  ): Promise<T> {
    const fenced = fencedOrThrow(lease)
    if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
    return this.#run(fenced, { work: whileHeld(lease, work), isolation: isolationOf(options) })
  }

  async within(transaction: Transaction | RunStatement, lease: Fenced): Promise<void> {
    const fenced = fencedOrThrow(lease)
    const query = this.#dialect.queryWithin(transaction)
    try {
      const raising = this.#dialect.raiseWithin(query, this.#table, fenced)
      this.#refuse(fenced, await this.#context.answered(fenced.resources, raising))
    } catch (error) {
      if (!this.#dialect.isMissingTable(error)) throw this.#failure(fenced.resources, error)
      const how = 'the guard does not create it in your transaction: call init() before, or run schema'
      throw new GuardError(`there is no table ${this.#table}; ${how}`, fenced.resources, {
        cause: error,
        transient: false,
      })
    }
  }

  column(lease: Fenced, options: ColumnOptions = {}): ColumnFence {
    return columnFence(fencedOrThrow(lease), options, this.#dialect, this.#context)
  }

  #run<T>(
    lease: Fenced,
    terms: {
      readonly work: (transaction: Transaction) => T | Promise<T>
      readonly from?: string | undefined
      readonly isolation?: Isolation | undefined
    },
  ): Promise<T> {
    const [dialect, client, table] = [this.#dialect, this.#client, this.#table]
    return fencedTransaction<[unknown, SqlQuery], T>(this.#context, lease, {
      prepare: async () => dialect.prepare?.(client.query, table, lease),
      open: (inside) => client.transaction((...opened) => inside(opened), terms.isolation),
      raise: async ([, query]) => this.#refuse(lease, await dialect.raise(query, table, lease, terms.from)),
      // The driver hands over what the caller's types say.
      work: ([transaction]) => terms.work(transaction as Transaction),
      failure: (error) => this.#failure(lease.resources, error),
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
      await this.#client.query(this.schema, [])
    } catch (error) {
      if (!this.#dialect.isCreated(error)) throw error
    }
  }

  #failure(resources: readonly string[], error: unknown): unknown {
    return this.#dialect.isAnswer(error) ? error : this.#context.failure(resources, error)
  }

  #refuse(lease: Fenced, refused: readonly RefusedResource[]): void {
    const [first] = refused
    if (first !== undefined) throw this.#context.refusal(lease, first.resource, first.seen)
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

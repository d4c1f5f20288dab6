import { optionsOrThrow } from '../arguments.ts'
import { shown } from '../duration.ts'
import type { RunStatement, SqlQuery, TransactionalClient } from '../engines/shared/sql/client.ts'
import type { Isolation } from '../engines/shared/sql/transaction.ts'
import { GuardError } from '../errors.ts'
import { resourceName } from '../options.ts'
import {
  MOST_RUNS,
  runLimit,
  shortMessage,
  type RecordedRun,
  type Run,
  type RunsOptions,
  type RunStore,
} from '../runs.ts'
import { columnFence, type ColumnFence, type ColumnOptions, type ColumnSyntax } from './column.ts'
import { effectOf, keepMsOf, keyOrThrow, resultText, unknownEffect, type Effect, type EffectOptions } from './effect.ts'
import type { EffectWork, StoredEffect } from './effect.ts'
import { fencedTransaction } from './fenced-transaction.ts'
import {
  fencedOrThrow,
  GuardContext,
  StoreGuard,
  untrimmed,
  whileHeld,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'
import type { RefusedResource } from './rows.ts'
import { claimed, finished, type EffectStatements } from './sql-effects.ts'
import { runOf, type RunStatements } from './sql-runs.ts'

/** Options of the guards of PostgreSQL and MariaDB. */
export interface SqlGuardOptions extends GuardOptions {
  /**
   * Where the fences are, one row a resource. Default `ringfence_guard`; may name a schema: `app.fences`. What `once` records is
   * in a table of the same name with `_once` behind it, and the runs of jobs in one with `_runs`.
   */
  table?: string
}

/** Options of a transaction of the guard. */
export interface TransactionOptions {
  /** Default: the database's own default. Every level is safe. */
  isolation?: Isolation
}

/** Options of an effect that happens once, in a transaction. */
export interface SqlEffectOptions extends EffectOptions, TransactionOptions {}

/** A guard of a SQL database: your work runs in a transaction that raises the fence first. */
// oxlint-disable-next-line typescript/no-explicit-any -- a guard of any driver, whose work says itself what it gets
export interface SqlGuard<Transaction = any> extends Guard, RunStore {
  /**
   * The statement that creates the table of the fences, for a migration. Without one, the guard creates each table when it is
   * first missing.
   */
  readonly schema: string
  /** The statement that creates the table of `once`. */
  readonly onceSchema: string
  /** The statement that creates the table of the runs. */
  readonly runsSchema: string
  /** Creates the tables unless they are there. */
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
   * As `transaction`, and the key, the token and the result of the work are recorded in the same transaction. A repeat with the
   * same key, by any process, at any time, gets that result and does not run the work. If the work rejects, nothing is recorded.
   */
  once<T>(
    lease: Fenced,
    key: string,
    work: ((transaction: Transaction) => T | Promise<T>) & EffectWork<T>,
    options?: SqlEffectOptions,
  ): Promise<Effect<T>>
  /**
   * As `transaction`, in a transaction that is already open: raises the fence there. Call it before the first read. When it rejects,
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
  readonly effects: EffectStatements
  readonly runs: RunStatements
  /** The request may have taken effect although it failed. */
  isUnknown(error: unknown): boolean
  /** The statement failed because of another transaction; a new transaction may succeed. */
  isConflict(error: unknown): boolean
  isMissingTable(error: unknown): boolean
  /** The database itself has said so: its code is for the caller, who may try again after a conflict. */
  isAnswer(error: unknown): boolean
  /** Somebody else created the table at the same moment. */
  isCreated(error: unknown): boolean
}

/** A guard that records with `keep` deletes old records before its first call, and before every 50th after it. */
const CLEAN_EVERY = 50
/** More than are recorded meanwhile, so that old records become fewer. */
const CLEAN_MOST = 100

export class SqlStoreGuard<Transaction> extends StoreGuard implements SqlGuard<Transaction> {
  readonly schema: string
  readonly onceSchema: string
  readonly runsSchema: string
  readonly #dialect: Dialect
  readonly #client: TransactionalClient
  readonly #table: string
  readonly #onceTable: string
  readonly #runsTable: string
  readonly #context: GuardContext
  /** How many calls with `keep` there were since old records were deleted. */
  #uncleaned = CLEAN_EVERY

  constructor(dialect: Dialect, client: TransactionalClient, options: SqlGuardOptions) {
    const context = new GuardContext(dialect.name, options, ['table'])
    super(context)
    this.#context = context
    this.#dialect = dialect
    this.#client = client
    const table = tableOrThrow(options.table ?? 'ringfence_guard')
    this.#table = quotedTable(table, dialect)
    this.#onceTable = quotedTable(`${table}_once`, dialect)
    this.#runsTable = quotedTable(`${table}_runs`, dialect)
    this.schema = dialect.schema(this.#table)
    this.onceSchema = dialect.effects.schema(this.#onceTable)
    this.runsSchema = dialect.runs.schema(this.#runsTable)
  }

  async init(): Promise<void> {
    try {
      await this.#context.answered([], this.#create(this.schema, this.onceSchema, this.runsSchema))
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
    workOrThrow(work)
    optionsOrThrow(options, ['isolation'])
    return this.#run(fenced, { work: whileHeld(lease, work), isolation: isolationOf(options) })
  }

  async once<T>(
    lease: Fenced,
    key: string,
    work: (transaction: Transaction) => T | Promise<T>,
    options: SqlEffectOptions = {},
  ): Promise<Effect<T>> {
    const fenced = fencedOrThrow(lease)
    keyOrThrow(key)
    workOrThrow(work)
    optionsOrThrow(options, ['keep', 'isolation'])
    const [keepMs, isolation] = [keepMsOf(options), isolationOf(options)]
    const [dialect, table] = [this.#dialect, this.#onceTable]
    let stored: StoredEffect | undefined
    let hasRun = false
    try {
      return await this.#run<Effect<T>>(fenced, {
        isolation,
        tables: [this.schema, this.onceSchema],
        before: async () => (keepMs === undefined ? undefined : this.#clean()),
        entered: async (query) => {
          stored = await claimed(dialect.effects, query, table, key, fenced)
        },
        work: async (transaction, query) => {
          if (stored !== undefined) return effectOf(stored, false)
          const result = resultText(await whileHeld(lease, work)(transaction))
          hasRun = true
          const finishing = finished(dialect.effects, query, table, key, { result, keepMs })
          return effectOf(await this.#context.answered(fenced.resources, finishing), true)
        },
      })
    } catch (error) {
      throw hasRun && dialect.isUnknown(error) ? unknownEffect(key, fenced, error) : error
    }
  }

  async recordRun(run: Run): Promise<void> {
    const { runs } = this.#dialect
    const [query, table] = [this.#client.query, this.#runsTable]
    const message = shortMessage(run.message)
    await this.#stored(() => runs.record(query, table, { ...run, message }))
    // Once a run, and after it: what is there to read is never less than it could be.
    if (run.outcome === 'began') return
    await this.#stored(() => runs.trim(query, table, run.job, MOST_RUNS)).catch((error: unknown) => {
      throw untrimmed(error)
    })
  }

  async runs(job: string, options: RunsOptions = {}): Promise<readonly RecordedRun[]> {
    const [name, limit] = [resourceName(job, 'job'), runLimit(options)]
    const { runs } = this.#dialect
    const rows = await this.#stored(() => runs.read(this.#client.query, this.#runsTable, name, limit))
    return rows.map((row) => runOf(name, row))
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

  #run<T>(lease: Fenced, terms: RunTerms<Transaction, T>): Promise<T> {
    const [dialect, client, table] = [this.#dialect, this.#client, this.#table]
    return fencedTransaction<[unknown, SqlQuery], T>(this.#context, lease, {
      prepare: async () => {
        await dialect.prepare?.(client.query, table, lease)
        await terms.before?.()
      },
      open: (inside) => client.transaction((...opened) => inside(opened), terms.isolation),
      raise: async ([, query]) => {
        this.#refuse(lease, await dialect.raise(query, table, lease, terms.from))
        await terms.entered?.(query)
      },
      // The driver hands over what the caller's types say.
      work: ([transaction, query]) => terms.work(transaction as Transaction, query),
      failure: (error) => this.#failure(lease.resources, error),
      mayTryAgain: async (error) => {
        if (dialect.isConflict(error)) return true
        if (!dialect.isMissingTable(error)) return false
        await this.#create(...(terms.tables ?? [this.schema]))
        return true
      },
    })
  }

  async #create(...schemas: readonly string[]): Promise<void> {
    for (const schema of schemas) {
      try {
        await this.#client.query(schema, [])
      } catch (error) {
        if (!this.#dialect.isCreated(error)) throw error
      }
    }
  }

  /** Before the transaction, so that it delays nobody else's, and a failure is one before anything was done. */
  async #clean(): Promise<void> {
    if (++this.#uncleaned <= CLEAN_EVERY) return
    await this.#dialect.effects.clean(this.#client.query, this.#onceTable, CLEAN_MOST)
    this.#uncleaned = 0
  }

  /** A statement about runs; if their table is missing, it is created first. */
  async #stored<T>(statement: () => Promise<T>): Promise<T> {
    const orCreate = async (): Promise<T> => {
      try {
        return await statement()
      } catch (error) {
        if (!this.#dialect.isMissingTable(error)) throw error
        await this.#create(this.runsSchema)
        return statement()
      }
    }
    try {
      return await this.#context.answered([], orCreate())
    } catch (error) {
      throw this.#failure([], error)
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

interface RunTerms<Transaction, T> {
  readonly work: (transaction: Transaction, query: SqlQuery) => T | Promise<T>
  readonly from?: string | undefined
  readonly isolation?: Isolation | undefined
  /** What creates the tables that may be missing. Default: that of the fences. */
  readonly tables?: readonly string[]
  /** Before the transaction. */
  readonly before?: () => Promise<void>
  /** In it, when the fences are raised. If it fails, it may be tried again in another transaction. */
  readonly entered?: (query: SqlQuery) => Promise<void>
}

const ISOLATIONS: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable']

function isolationOf({ isolation }: TransactionOptions): Isolation | undefined {
  if (isolation === undefined || ISOLATIONS.includes(isolation)) return isolation
  throw new TypeError(`isolation: expected '${ISOLATIONS.join("', '")}', got ${shown(isolation)}`)
}

function workOrThrow(work: unknown): void {
  if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
}

/** A longer name would be cut by PostgreSQL, together with what we put behind it. */
const LONGEST_TABLE = 58

function tableOrThrow(table: unknown): string {
  if (typeof table !== 'string' || !/^[a-z_][\w$]*(\.[a-z_][\w$]*)?$/i.test(table)) {
    throw new TypeError(`table: expected a name, or a schema and a name with a dot between, got ${shown(table)}`)
  }
  const { length } = table.split('.').at(-1)!
  if (length <= LONGEST_TABLE) return table
  throw new RangeError(`table: expected a name of at most ${LONGEST_TABLE} characters, got ${length}`)
}

function quotedTable(table: string, { quote }: Dialect): string {
  return table.split('.').map(quote).join('.')
}

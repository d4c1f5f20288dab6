import type { LeaseRef } from '../../engine.ts'
import { READERS } from '../shared/readers.ts'
import { columnText, type SqlQuery, type SqlRow } from '../shared/sql/client.ts'
import type { FailureKind, LeasePage, LeaseSteps, TableLook, TableRow, Take, TakeAtOnce } from '../shared/sql/steps.ts'
import { tableShape } from '../shared/sql/table-shape.ts'
import { failureKind, isRaced, sqlState } from './errors.ts'
import { postgresPage } from './inspect.ts'
import { POSTGRES_COLUMNS, postgresStatements, quoted, type PostgresStatements } from './statements.ts'

/** Where statements run, and the session that new leases are bound to. */
export interface LeaseConnection {
  readonly query: SqlQuery
  /** The number of the advisory lock that a session holds while it lives; null for leases that end by time alone. */
  readonly session: string | null
}

export interface PostgresStepsOptions {
  readonly table: string
  /** A promise, because a session may have to be opened first. */
  readonly connection: () => Promise<LeaseConnection>
  readonly bound: boolean
  /** Where releases are notified; an empty channel notifies nobody. */
  readonly channel: string
  /** Begins the payload of our notifications. */
  readonly senderId: string
}

/** CREATE TABLE IF NOT EXISTS from several processes at once: the slower ones fail on an index of the catalogue. */
const CREATED_MEANWHILE = ['23505', '42P07', '42710']

export class PostgresSteps implements LeaseSteps {
  readonly schema: string
  readonly change: string
  readonly leave?: (lease: LeaseRef) => Promise<boolean>
  readonly #options: PostgresStepsOptions
  readonly #sql: PostgresStatements

  constructor(options: PostgresStepsOptions) {
    this.#options = options
    this.#sql = postgresStatements(options.table)
    this.schema = this.#sql.create
    this.change = this.#sql.change
    if (options.bound) this.leave = (lease) => this.#leave(lease)
  }

  readonly takeAtOnce = async (take: Take): Promise<TakeAtOnce> => {
    const { resources, owner, ttlMs, shared = false } = take
    const { query, session } = await this.#options.connection()
    const terms = [owner, whole(ttlMs), session]
    const { takeOne, takeAll, shareOne, shareAll } = this.#sql
    try {
      const [row] =
        resources.length === 1
          ? await query(shared ? shareOne : takeOne, [resources[0]!, ...terms])
          : await query(shared ? shareAll : takeAll, [
              JSON.stringify(resources),
              ...terms,
              ...(shared ? ['[]', null] : []),
            ])
      return row === undefined ? {} : { token: BigInt(columnText(row, 'token')) }
    } catch (error) {
      if (isRaced(error)) return {}
      throw error
    }
  }

  async look(resources: readonly string[]): Promise<TableLook> {
    const { query, session } = await this.#options.connection()
    const rows = await query(this.#sql.look, [JSON.stringify(resources), session])
    return {
      clockUs: BigInt(columnText(rows[0], 'clock')),
      rows: rows.filter(({ token }) => token !== null).map(tableRow),
    }
  }

  async take(take: Take & { token: bigint; endedSessions: readonly string[] }): Promise<boolean> {
    const { resources, owner, ttlMs, token, endedSessions, shared = false } = take
    const { query, session } = await this.#options.connection()
    const terms = [owner, whole(ttlMs), session, JSON.stringify(endedSessions), String(token)]
    const statement = shared ? this.#sql.shareAll : this.#sql.take
    try {
      return (await query(statement, [JSON.stringify(resources), ...terms])).length === resources.length
    } catch (error) {
      if (isRaced(error)) return false
      throw error
    }
  }

  async want(resources: readonly string[]): Promise<boolean> {
    const { query } = await this.#options.connection()
    return (await query(this.#sql.want, [JSON.stringify(resources)])).length > 0
  }

  async note({ resource, owner, isShared, counter }: TableRow): Promise<boolean> {
    const { query } = await this.#options.connection()
    const terms = [isShared ? READERS : (owner ?? null), String(counter)]
    return (await query(this.#sql.note, [resource, ...terms])).length > 0
  }

  async noteAll(resources: readonly string[]): Promise<void> {
    const { query } = await this.#options.connection()
    await query(this.#sql.noteAll, [JSON.stringify(resources)])
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]> {
    const { query, session } = await this.#options.connection()
    return this.#extend(query, leases, session)
  }

  async release({
    resources,
    owner,
    shared,
  }: Pick<LeaseRef, 'resources' | 'owner' | 'shared'>): Promise<{ live: number; awaited: number }> {
    const { channel, senderId } = this.#options
    const { query } = await this.#options.connection()
    // A person who ends a lease may not know whether it is shared.
    const statement = shared === false ? this.#sql.release : this.#sql.releaseShared
    const [row] = await query(statement, [JSON.stringify(resources), owner, channel, senderId])
    return { live: Number(columnText(row, 'live')), awaited: Number(columnText(row, 'awaited')) }
  }

  async handOver({ resources, owner }: LeaseRef, next: Take): Promise<bigint | undefined> {
    const { query, session } = await this.#options.connection()
    const { keepMs = 0 } = next
    const terms = [owner, next.owner, whole(next.ttlMs), keepMs > 0 ? null : session]
    const [row] = await query(this.#sql.handOver, [JSON.stringify(resources), ...terms])
    return row === undefined ? undefined : BigInt(columnText(row, 'token'))
  }

  async page(after: string, resource?: string): Promise<LeasePage> {
    const { query, session } = await this.#options.connection()
    return postgresPage(await query(this.#sql.page, [after, resource ?? null, session]))
  }

  async create(): Promise<'created' | 'changed' | 'neither'> {
    const { query } = await this.#options.connection()
    const shape = async (): Promise<ReturnType<typeof tableShape>> => {
      const [row] = await query(this.#sql.columns, [quoted(this.#options.table)])
      return tableShape(row?.['columns'], POSTGRES_COLUMNS)
    }
    // Checked first: a role that may use the table need not be allowed to create or to change one.
    const before = await shape()
    if (before === 'earlier') {
      await query(this.#sql.change, [])
      return 'changed'
    }
    if (before !== 'none') return 'neither'
    try {
      await query(this.#sql.create, [])
      return 'created'
    } catch (error) {
      if (CREATED_MEANWHILE.includes(sqlState(error) ?? '') && (await shape()) !== 'none') return 'neither'
      throw error
    }
  }

  failureKind(error: unknown): FailureKind {
    return failureKind(error)
  }

  /** An extension without a session. */
  async #leave(lease: LeaseRef): Promise<boolean> {
    const { query } = await this.#options.connection()
    const [isHeld] = await this.#extend(query, [lease], null)
    return isHeld === true
  }

  async #extend(query: SqlQuery, leases: readonly LeaseRef[], session: string | null): Promise<readonly boolean[]> {
    const wanted = leases.flatMap(({ resources, owner, ttlMs }, lease) =>
      resources.map((resource) => ({ lease, resource, owner, ttl: Math.ceil(ttlMs) })),
    )
    const statement = leases.some(({ shared = false }) => shared) ? this.#sql.extendShared : this.#sql.extend
    const rows = await query(statement, [JSON.stringify(wanted), session])
    const held = new Set(rows.map((row) => Number(columnText(row, 'lease'))))
    return leases.map((_, index) => held.has(index))
  }
}

function tableRow(row: SqlRow): TableRow {
  return {
    resource: columnText(row, 'resource'),
    counter: BigInt(columnText(row, 'counter')),
    token: BigInt(columnText(row, 'token')),
    owner: row['owner'] ?? undefined,
    remainingMs: Number(columnText(row, 'remaining')),
    session: row['session'] ?? undefined,
    isEnded: row['ended'] === 'true',
    isAwaited: row['awaited'] === 'true',
    isShared: row['shared'] === 'true',
    wantedMs: Number(columnText(row, 'wanted')),
  }
}

/** What is left of a time has fractions. */
function whole(ms: number): string {
  return String(Math.ceil(ms))
}

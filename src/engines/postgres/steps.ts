import type { LeaseInfo, LeaseRef } from '../../engine.ts'
import { columnText, type SqlQuery, type SqlRow } from '../shared/sql/client.ts'
import type { FailureKind, LeaseSteps, TableLook, TableRow, Take, TakeAtOnce } from '../shared/sql/steps.ts'
import { failureKind, isRaced, sqlState } from './errors.ts'
import { postgresStatements, quoted, type PostgresStatements } from './statements.ts'

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
  readonly leave?: (lease: LeaseRef) => Promise<boolean>
  readonly #options: PostgresStepsOptions
  readonly #sql: PostgresStatements

  constructor(options: PostgresStepsOptions) {
    this.#options = options
    this.#sql = postgresStatements(options.table)
    this.schema = this.#sql.create
    if (options.bound) this.leave = (lease) => this.#leave(lease)
  }

  readonly takeAtOnce = async (take: Take): Promise<TakeAtOnce> => {
    const { resources, owner, ttlMs } = take
    const { query, session } = await this.#options.connection()
    const isOne = resources.length === 1
    const [statement, names] = isOne
      ? [this.#sql.takeOne, resources[0]!]
      : [this.#sql.takeAll, JSON.stringify(resources)]
    try {
      const [row] = await query(statement, [names, owner, whole(ttlMs), session])
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
    const { resources, owner, ttlMs, token, endedSessions } = take
    const { query, session } = await this.#options.connection()
    const terms = [owner, whole(ttlMs), session, JSON.stringify(endedSessions), String(token)]
    try {
      return (await query(this.#sql.take, [JSON.stringify(resources), ...terms])).length === resources.length
    } catch (error) {
      if (isRaced(error)) return false
      throw error
    }
  }

  async note({ resource, owner }: TableRow): Promise<boolean> {
    const { query } = await this.#options.connection()
    return (await query(this.#sql.note, [resource, owner ?? null])).length > 0
  }

  async noteAll(resources: readonly string[]): Promise<void> {
    const { query } = await this.#options.connection()
    await query(this.#sql.noteAll, [JSON.stringify(resources)])
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]> {
    const wanted = leases.flatMap(({ resources, owner, ttlMs }, lease) =>
      resources.map((resource) => ({ lease, resource, owner, ttl: Math.ceil(ttlMs) })),
    )
    const { query, session } = await this.#options.connection()
    const rows = await query(this.#sql.extend, [JSON.stringify(wanted), session])
    const held = new Set(rows.map((row) => Number(columnText(row, 'lease'))))
    return leases.map((_, index) => held.has(index))
  }

  async release({
    resources,
    owner,
  }: Pick<LeaseRef, 'resources' | 'owner'>): Promise<{ live: number; awaited: number }> {
    const { channel, senderId } = this.#options
    const { query } = await this.#options.connection()
    const [row] = await query(this.#sql.release, [JSON.stringify(resources), owner, channel, senderId])
    return { live: Number(columnText(row, 'live')), awaited: Number(columnText(row, 'awaited')) }
  }

  async handOver({ resources, owner }: LeaseRef, next: Take): Promise<bigint | undefined> {
    const { query, session } = await this.#options.connection()
    const terms = [owner, next.owner, whole(next.ttlMs), session]
    const [row] = await query(this.#sql.handOver, [JSON.stringify(resources), ...terms])
    return row === undefined ? undefined : BigInt(columnText(row, 'token'))
  }

  async page(after: string, resource?: string): Promise<readonly LeaseInfo[]> {
    const { query, session } = await this.#options.connection()
    const rows = await query(this.#sql.page, [after, resource ?? null, session])
    return rows.map((row) => ({
      resource: columnText(row, 'resource'),
      owner: columnText(row, 'owner'),
      token: BigInt(columnText(row, 'token')),
      remainingMs: Number(columnText(row, 'remaining')),
      heldMs: Number(columnText(row, 'held')),
    }))
  }

  async create(): Promise<boolean> {
    const { query } = await this.#options.connection()
    const exists = async (): Promise<boolean> => {
      const [row] = await query(this.#sql.exists, [quoted(this.#options.table)])
      return columnText(row, 'there') === 'true'
    }
    // Checked first: a role that may use the table need not be allowed to create one.
    if (await exists()) return false
    try {
      await query(this.#sql.create, [])
      return true
    } catch (error) {
      if (CREATED_MEANWHILE.includes(sqlState(error) ?? '') && (await exists())) return false
      throw error
    }
  }

  failureKind(error: unknown): FailureKind {
    return failureKind(error)
  }

  async #leave({ resources, owner, ttlMs }: LeaseRef): Promise<boolean> {
    const { query } = await this.#options.connection()
    return (await query(this.#sql.leave, [JSON.stringify(resources), owner, whole(ttlMs)])).length === resources.length
  }
}

function tableRow(row: SqlRow): TableRow {
  return {
    resource: columnText(row, 'resource'),
    token: BigInt(columnText(row, 'token')),
    owner: row['owner'] ?? undefined,
    remainingMs: Number(columnText(row, 'remaining')),
    session: row['session'] ?? undefined,
    isEnded: row['ended'] === 'true',
    isAwaited: row['awaited'] === 'true',
  }
}

/** What is left of a time has fractions. */
function whole(ms: number): string {
  return String(Math.ceil(ms))
}

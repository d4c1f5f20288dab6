import type { LeaseInfo, LeaseRef } from '../../engine.ts'
import type { LeaseRow, LeaseTable, Look, Take, Verdict } from '../sql/table.ts'
import type { PostgresClient, Row } from './client.ts'
import { AnswerError, isRaced, sqlState, verdict } from './errors.ts'
import { quoted, statements, type Statements } from './statements.ts'

/** Where statements are run, and the session that new leases are bound to. */
export interface Seat {
  readonly query: PostgresClient['query']
  /** The number of the advisory lock that a session holds as long as it lives; null for leases that end by time alone. */
  readonly session: string | null
}

export interface PostgresTableOptions {
  readonly table: string
  /** A promise, because a session may have to be opened first. */
  readonly seat: () => Promise<Seat>
  readonly bound: boolean
  /** Where releases are told, and who tells; an empty channel tells nobody. */
  readonly channel: string
  readonly sign: string
}

/** CREATE TABLE IF NOT EXISTS from several processes at once: the slower ones fail on an index of the catalogue. */
const CREATED_MEANWHILE = ['23505', '42P07', '42710']

export class PostgresLeaseTable implements LeaseTable {
  readonly schema: string
  readonly leave?: (lease: LeaseRef) => Promise<boolean>
  readonly #options: PostgresTableOptions
  readonly #sql: Statements

  constructor(options: PostgresTableOptions) {
    this.#options = options
    this.#sql = statements(options.table)
    this.schema = this.#sql.create
    if (options.bound) this.leave = (lease) => this.#leave(lease)
  }

  readonly takeOne = async ({ resources, owner, ttlMs }: Take): Promise<bigint | undefined> => {
    const { query, session } = await this.#options.seat()
    const [row] = await query(this.#sql.takeOne, [resources[0]!, owner, whole(ttlMs), session])
    return row === undefined ? undefined : BigInt(text(row, 'token'))
  }

  async look(resources: readonly string[]): Promise<Look> {
    const { query, session } = await this.#options.seat()
    const rows = await query(this.#sql.look, [JSON.stringify(resources), session])
    return { clockUs: BigInt(text(rows[0], 'clock')), rows: rows.filter(({ token }) => token !== null).map(leaseRow) }
  }

  async take(take: Take & { token: bigint; endedSessions: readonly string[] }): Promise<boolean> {
    const { resources, owner, ttlMs, token, endedSessions } = take
    const { query, session } = await this.#options.seat()
    const terms = [owner, whole(ttlMs), session, JSON.stringify(endedSessions), String(token)]
    try {
      return (await query(this.#sql.take, [JSON.stringify(resources), ...terms])).length === resources.length
    } catch (error) {
      if (isRaced(error)) return false
      throw error
    }
  }

  async note({ resource, owner }: LeaseRow): Promise<boolean> {
    const { query } = await this.#options.seat()
    return (await query(this.#sql.note, [resource, owner ?? null])).length > 0
  }

  async noteAll(resources: readonly string[]): Promise<void> {
    const { query } = await this.#options.seat()
    await query(this.#sql.noteAll, [JSON.stringify(resources)])
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]> {
    const wanted = leases.flatMap(({ resources, owner, ttlMs }, lease) =>
      resources.map((resource) => ({ lease, resource, owner, ttl: Math.ceil(ttlMs) })),
    )
    const { query, session } = await this.#options.seat()
    const rows = await query(this.#sql.extend, [JSON.stringify(wanted), session])
    const held = new Set(rows.map((row) => Number(text(row, 'lease'))))
    return leases.map((_, index) => held.has(index))
  }

  async release({
    resources,
    owner,
  }: Pick<LeaseRef, 'resources' | 'owner'>): Promise<{ live: number; awaited: number }> {
    const { channel, sign } = this.#options
    const { query } = await this.#options.seat()
    const [row] = await query(this.#sql.release, [JSON.stringify(resources), owner, channel, sign])
    return { live: Number(text(row, 'live')), awaited: Number(text(row, 'awaited')) }
  }

  async handOver({ resources, owner }: LeaseRef, next: Take): Promise<bigint | undefined> {
    const { query, session } = await this.#options.seat()
    const terms = [owner, next.owner, whole(next.ttlMs), session]
    const [row] = await query(this.#sql.handOver, [JSON.stringify(resources), ...terms])
    return row === undefined ? undefined : BigInt(text(row, 'token'))
  }

  async page(after: string, resource?: string): Promise<readonly LeaseInfo[]> {
    const { query, session } = await this.#options.seat()
    const rows = await query(this.#sql.page, [after, resource ?? null, session])
    return rows.map((row) => ({
      resource: text(row, 'resource'),
      owner: text(row, 'owner'),
      token: BigInt(text(row, 'token')),
      remainingMs: Number(text(row, 'remaining')),
      heldMs: Number(text(row, 'held')),
    }))
  }

  async create(): Promise<boolean> {
    const { query } = await this.#options.seat()
    const exists = async (): Promise<boolean> => {
      const [row] = await query(this.#sql.exists, [quoted(this.#options.table)])
      return text(row, 'there') === 'true'
    }
    // Looked at first: a role that may use the table need not be allowed to create one.
    if (await exists()) return false
    try {
      await query(this.#sql.create, [])
      return true
    } catch (error) {
      if (CREATED_MEANWHILE.includes(sqlState(error) ?? '') && (await exists())) return false
      throw error
    }
  }

  verdict(error: unknown): Verdict {
    return verdict(error)
  }

  async #leave({ resources, owner, ttlMs }: LeaseRef): Promise<boolean> {
    const { query } = await this.#options.seat()
    return (await query(this.#sql.leave, [JSON.stringify(resources), owner, whole(ttlMs)])).length === resources.length
  }
}

function leaseRow(row: Row): LeaseRow {
  return {
    resource: text(row, 'resource'),
    token: BigInt(text(row, 'token')),
    owner: row['owner'] ?? undefined,
    remainingMs: Number(text(row, 'remaining')),
    session: row['session'] ?? undefined,
    isEnded: row['ended'] === 'true',
    isAwaited: row['awaited'] === 'true',
  }
}

/** What is left of a time has fractions. */
function whole(ms: number): string {
  return String(Math.ceil(ms))
}

/** Only an answer of another shape lacks it: a client that is not what it seemed, or that renames columns. */
function text(row: Row | undefined, column: string): string {
  const value = row?.[column]
  if (typeof value === 'string') return value
  throw new AnswerError(`expected rows with a text column '${column}' from the client, got ${JSON.stringify(row)}`)
}

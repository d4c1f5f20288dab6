import type { LeaseInfo, LeaseRef } from '../../engine.ts'
import { columnText, type SqlRow } from '../shared/sql/client.ts'
import type { FailureKind, LeaseSteps, TableLook, TableRow, Take, TakeAtOnce } from '../shared/sql/steps.ts'
import { batches } from '../shared/together.ts'
import { fromHex, type RunMariadb } from './client.ts'
import { AutocommitError, failureKind, isRaced, isSyntaxError } from './errors.ts'
import { MariadbStatements } from './statements.ts'

/** Names and owners in one statement, where each byte is two characters. Servers take a megabyte and more. */
const MOST_BYTES = 250_000

export class MariadbSteps implements LeaseSteps {
  readonly schema: string
  readonly #run: RunMariadb
  readonly #sql: MariadbStatements
  #canReturn = true

  constructor(run: RunMariadb, table: string) {
    this.#run = run
    this.#sql = new MariadbStatements(table)
    this.schema = this.#sql.create
  }

  /** Only MariaDB, from 10.5 on, returns rows from an insertion. On other servers it is a look and then a take. */
  readonly takeAtOnce = async (take: Take): Promise<TakeAtOnce | undefined> => {
    if (!this.#canReturn) return undefined
    try {
      return await (take.resources.length === 1 ? this.#takeOne(take) : this.#takeAll(take))
    } catch (error) {
      if (!isSyntaxError(error)) throw error
      this.#canReturn = false
      return undefined
    }
  }

  async look(resources: readonly string[]): Promise<TableLook> {
    const { rows } = await this.#run(this.#sql.look(resources))
    if (columnText(rows[0], 'autocommit') !== 'on') throw new AutocommitError()
    return tableLook(rows)
  }

  async take(take: Take & { token: bigint }): Promise<boolean> {
    try {
      await this.#run(this.#sql.take(take))
      return true
    } catch (error) {
      if (isRaced(error)) return false
      throw error
    }
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]> {
    const held: boolean[] = []
    for (const batch of batches(leases, MOST_BYTES, sizeOf)) {
      const { affected } = await this.#run(this.#sql.extend(batch))
      const isAll = affected === batch.reduce((sum, { resources }) => sum + resources.length, 0)
      // Rows that are the owner's now were so at the extension too: a lease that is gone never comes back.
      held.push(...batch.map(isAll ? () => true : await this.#holding(batch)))
    }
    return held
  }

  /** The counters of those that are free, by name; of a resource without a row it is undefined. */
  async free(resources: readonly string[]): Promise<Map<string, string | undefined>> {
    const free = new Map<string, string | undefined>(resources.map((resource) => [resource, undefined]))
    for (const batch of batches(resources, MOST_BYTES, (name) => Buffer.byteLength(name))) {
      const { rows } = await this.#run(this.#sql.counters(batch))
      for (const row of rows) {
        const resource = fromHex(columnText(row, 'resource'))
        if (columnText(row, 'state') === 'free') free.set(resource, columnText(row, 'token'))
        else free.delete(resource)
      }
    }
    return free
  }

  async release(lease: Pick<LeaseRef, 'resources' | 'owner'>): Promise<{ live: number; awaited: number }> {
    const { affected } = await this.#run(this.#sql.release(lease))
    return { live: affected, awaited: 0 }
  }

  async handOver(lease: LeaseRef, next: Take): Promise<bigint | undefined> {
    const { affected } = await this.#run(this.#sql.handOver(lease, next))
    if (affected === lease.resources.length) return lease.token + 1n
    // The rows of a lease change together, unless somebody changes them by hand.
    if (affected > 0) await this.release(next)
    return undefined
  }

  async page(after: string, resource?: string): Promise<readonly LeaseInfo[]> {
    const { rows } = await this.#run(this.#sql.page(after, resource))
    return rows.map((row) => ({
      resource: fromHex(columnText(row, 'resource')),
      owner: fromHex(columnText(row, 'owner')),
      token: BigInt(columnText(row, 'token')),
      remainingMs: Number(columnText(row, 'remaining')),
      heldMs: Number(columnText(row, 'held')),
    }))
  }

  async create(): Promise<boolean> {
    const { rows } = await this.#run(this.#sql.exists)
    // Checked first: an account that may use the table need not be allowed to create one.
    if (columnText(rows[0], 'tables') !== '0') return false
    await this.#run(this.#sql.create)
    return true
  }

  failureKind(error: unknown): FailureKind {
    return failureKind(error)
  }

  async #takeOne(take: Take): Promise<TakeAtOnce> {
    const { rows } = await this.#run(this.#sql.takeOne(take))
    if (rows.length === 0) throw new AutocommitError()
    const look = tableLook(rows)
    const [row] = look.rows
    return row?.owner === take.owner ? { token: row.token } : { look }
  }

  async #takeAll(take: Take): Promise<TakeAtOnce> {
    try {
      const { rows } = await this.#run(this.#sql.takeAll(take))
      if (rows.length === 0) throw new AutocommitError()
      return { token: BigInt(columnText(rows[0], 'token')) }
    } catch (error) {
      if (isRaced(error)) return {}
      throw error
    }
  }

  async #holding(leases: readonly LeaseRef[]): Promise<(lease: LeaseRef) => boolean> {
    const { rows } = await this.#run(this.#sql.held(leases))
    const held = new Set(
      rows.map((row) => pair(fromHex(columnText(row, 'resource')), fromHex(columnText(row, 'owner')))),
    )
    return ({ resources, owner }) => resources.every((resource) => held.has(pair(resource, owner)))
  }
}

function sizeOf({ resources, owner }: LeaseRef): number {
  return resources.reduce((sum, resource) => sum + Buffer.byteLength(resource), owner.length)
}

/** Neither of the two contains a control character. */
function pair(resource: string, owner: string): string {
  return `${owner}\n${resource}`
}

function tableLook(rows: readonly SqlRow[]): TableLook {
  return {
    clockUs: BigInt(columnText(rows[0], 'clock')),
    rows: rows.filter(({ token }) => token !== null).map(tableRow),
  }
}

function tableRow(row: SqlRow): TableRow {
  const owner = row['owner']
  return {
    resource: fromHex(columnText(row, 'resource')),
    token: BigInt(columnText(row, 'token')),
    owner: owner === null || owner === undefined ? undefined : fromHex(owner),
    remainingMs: Number(columnText(row, 'remaining')),
    session: undefined,
    isEnded: false,
    isAwaited: false,
  }
}

import type { LeaseInfo, LeaseRef } from '../../engine.ts'
import type { LeaseRow, LeaseTable, Look, Take, Verdict } from '../sql/table.ts'
import { AnswerError, type Row, type Run } from './client.ts'
import { AutocommitError, isRaced, verdict } from './errors.ts'
import { fromHex, Statements } from './statements.ts'

export class MariadbLeaseTable implements LeaseTable {
  readonly schema: string
  readonly #run: Run
  readonly #sql: Statements

  constructor(run: Run, table: string) {
    this.#run = run
    this.#sql = new Statements(table)
    this.schema = this.#sql.create
  }

  async look(resources: readonly string[]): Promise<Look> {
    const { rows } = await this.#run(this.#sql.look(resources))
    if (text(rows[0], 'autocommit') !== 'on') throw new AutocommitError()
    return { clockUs: BigInt(text(rows[0], 'clock')), rows: rows.filter(({ token }) => token !== null).map(leaseRow) }
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
    const held = leases.map(() => false)
    for (const [ttlMs, indexes] of byTtl(leases)) {
      const group = indexes.map((index) => leases[index]!)
      const { affected } = await this.#run(this.#sql.extend(group, ttlMs))
      const isAll = affected === group.reduce((sum, { resources }) => sum + resources.length, 0)
      // What is the owner's now was so at the extension too: a lease that is gone never comes back.
      const isHeld = isAll ? () => true : await this.#holding(group)
      for (const index of indexes) held[index] = isHeld(leases[index]!)
    }
    return held
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
      resource: fromHex(text(row, 'resource')),
      owner: fromHex(text(row, 'owner')),
      token: BigInt(text(row, 'token')),
      remainingMs: Number(text(row, 'remaining')),
      heldMs: Number(text(row, 'held')),
    }))
  }

  async create(): Promise<boolean> {
    const { rows } = await this.#run(this.#sql.exists)
    // Looked at first: an account that may use the table need not be allowed to create one.
    if (text(rows[0], 'tables') !== '0') return false
    await this.#run(this.#sql.create)
    return true
  }

  verdict(error: unknown): Verdict {
    return verdict(error)
  }

  async #holding(leases: readonly LeaseRef[]): Promise<(lease: LeaseRef) => boolean> {
    const { rows } = await this.#run(this.#sql.held(leases))
    const held = new Set(rows.map((row) => pair(fromHex(text(row, 'resource')), fromHex(text(row, 'owner')))))
    return ({ resources, owner }) => resources.every((resource) => held.has(pair(resource, owner)))
  }
}

function byTtl(leases: readonly LeaseRef[]): Map<number, number[]> {
  const groups = new Map<number, number[]>()
  for (const [index, { ttlMs }] of leases.entries()) {
    const group = groups.get(ttlMs)
    if (group === undefined) groups.set(ttlMs, [index])
    else group.push(index)
  }
  return groups
}

/** Neither holds a control character. */
function pair(resource: string, owner: string): string {
  return `${owner}\n${resource}`
}

function leaseRow(row: Row): LeaseRow {
  const owner = row['owner']
  return {
    resource: fromHex(text(row, 'resource')),
    token: BigInt(text(row, 'token')),
    owner: owner === null || owner === undefined ? undefined : fromHex(owner),
    remainingMs: Number(text(row, 'remaining')),
    session: undefined,
    isEnded: false,
    isAwaited: false,
  }
}

/** Only an answer of another shape lacks it: a client that is not what it seemed. */
function text(row: Row | undefined, column: string): string {
  const value = row?.[column]
  if (typeof value === 'string') return value
  throw new AnswerError(`expected rows with a text column '${column}' from the client, got ${JSON.stringify(row)}`)
}

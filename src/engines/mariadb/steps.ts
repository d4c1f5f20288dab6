import type { LeaseRef } from '../../engine.ts'
import { columnText, type SqlRow } from '../shared/sql/client.ts'
import type { FailureKind, LeasePage, LeaseSteps, TableLook, Take, TakeAtOnce } from '../shared/sql/steps.ts'
import { tableShape } from '../shared/sql/table-shape.ts'
import { batches } from '../shared/together.ts'
import { fromHex, type RunMariadb } from './client.ts'
import { AutocommitError, failureKind, isColumnThere, isRaced, isSyntaxError } from './errors.ts'
import { mariadbPage } from './inspect.ts'
import { tableRows } from './readers.ts'
import { MARIADB_COLUMNS, MariadbStatements } from './statements.ts'

/** Names and owners in one statement, where each byte is two characters. Servers take a megabyte and more. */
const MOST_BYTES = 250_000
/** An extension of readers names each of them four times. */
const MOST_BYTES_OF_READERS = MOST_BYTES / 4
/** How often readers are extended again because some of them were lost meanwhile. */
const MOST_TRIES = 3

export class MariadbSteps implements LeaseSteps {
  readonly schema: string
  readonly change: string
  readonly #run: RunMariadb
  readonly #sql: MariadbStatements
  #canReturn = true

  constructor(run: RunMariadb, table: string) {
    this.#run = run
    this.#sql = new MariadbStatements(table)
    this.schema = this.#sql.create
    this.change = this.#sql.change
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
      await this.#run(take.shared === true ? this.#sql.share(take) : this.#sql.take(take))
      return true
    } catch (error) {
      if (isRaced(error)) return false
      throw error
    }
  }

  async want(resources: readonly string[]): Promise<boolean> {
    const { affected } = await this.#run(this.#sql.want(resources, 'shared'))
    // Those that are free too: readers of one would keep the writer waiting after those of the other are gone.
    if (affected > 0 && resources.length > 1) await this.#run(this.#sql.want(resources, 'all'))
    return affected > 0
  }

  async extend(leases: readonly LeaseRef[]): Promise<readonly boolean[]> {
    const held = new Set<LeaseRef>()
    const writers = leases.filter(({ shared = false }) => !shared)
    for (const batch of batches(writers, MOST_BYTES, sizeOf)) {
      const { affected } = await this.#run(this.#sql.extend(batch))
      const isAll = affected === batch.reduce((sum, { resources }) => sum + resources.length, 0)
      // Rows that are the owner's now were so at the extension too: a lease that is gone never comes back.
      const stillHeld = isAll ? batch : batch.filter(await this.#holding(batch))
      for (const lease of stillHeld) held.add(lease)
    }
    const readers = leases.filter(({ shared = false }) => shared)
    for (const batch of batches(readers, MOST_BYTES_OF_READERS, sizeOf)) {
      for (const lease of await this.#extendReaders(batch)) held.add(lease)
    }
    return leases.map((lease) => held.has(lease))
  }

  /**
   * The counters of those that are free, or that readers share, by name; of a resource without a row it is undefined. One that
   * readers share may be free to those who wait: the text then differs from that of a free one.
   */
  async free(resources: readonly string[]): Promise<Map<string, string | undefined>> {
    const free = new Map<string, string | undefined>(resources.map((resource) => [resource, undefined]))
    for (const batch of batches(resources, MOST_BYTES, (name) => Buffer.byteLength(name))) {
      const { rows } = await this.#run(this.#sql.counters(batch))
      for (const row of rows) {
        const resource = fromHex(columnText(row, 'resource'))
        const [state, token] = [columnText(row, 'state'), columnText(row, 'token')]
        if (state === 'held') free.delete(resource)
        else free.set(resource, state === 'free' ? token : `${state} ${token}`)
      }
    }
    return free
  }

  async release(lease: Pick<LeaseRef, 'resources' | 'owner' | 'shared'>): Promise<{ live: number; awaited: number }> {
    const isWriter = lease.shared === false
    const { affected } = await this.#run(isWriter ? this.#sql.release(lease) : this.#sql.releaseReader(lease))
    return { live: affected, awaited: 0 }
  }

  async handOver(lease: LeaseRef, next: Take): Promise<bigint | undefined> {
    const { affected } = await this.#run(this.#sql.handOver(lease, next))
    if (affected === lease.resources.length) return lease.token + 1n
    // The rows of a lease change together, unless somebody changes them by hand.
    if (affected > 0) await this.release(next)
    return undefined
  }

  async page(after: string, resource?: string): Promise<LeasePage> {
    const { rows } = await this.#run(this.#sql.page(after, resource))
    return mariadbPage(rows)
  }

  async create(): Promise<'created' | 'changed' | 'neither'> {
    const { rows } = await this.#run(this.#sql.columns)
    // Checked first: an account that may use the table need not be allowed to create or to change one.
    const shape = tableShape(rows[0]?.['columns'], MARIADB_COLUMNS)
    if (shape === 'none') {
      await this.#run(this.#sql.create)
      return 'created'
    }
    return shape === 'earlier' && (await this.#change()) ? 'changed' : 'neither'
  }

  /** False when another process was faster. */
  async #change(): Promise<boolean> {
    try {
      await this.#run(this.#sql.change)
      return true
    } catch (error) {
      if (isColumnThere(error)) return false
      throw error
    }
  }

  failureKind(error: unknown): FailureKind {
    return failureKind(error)
  }

  async #takeOne(take: Take): Promise<TakeAtOnce> {
    const { rows } = await this.#run(take.shared === true ? this.#sql.shareOne(take) : this.#sql.takeOne(take))
    if (rows.length === 0) throw new AutocommitError()
    const look = tableLook(rows)
    const own = look.rows.find(({ owner }) => owner === take.owner)
    return own === undefined ? { look } : { token: own.token }
  }

  async #takeAll(take: Take): Promise<TakeAtOnce> {
    try {
      const { rows } = await this.#run(take.shared === true ? this.#sql.shareAll(take) : this.#sql.takeAll(take))
      if (rows.length === 0) throw new AutocommitError()
      const tokens = rows.map((row) => BigInt(columnText(row, 'token')))
      const token = tokens.reduce((one, other) => (one > other ? one : other))
      if (tokens.every((one) => one === token) || (await this.#isRaised(take, token))) return { token }
      await this.release(take)
      return {}
    } catch (error) {
      if (isRaced(error)) return {}
      throw error
    }
  }

  /** False if the lease has ended meanwhile. */
  async #isRaised(take: Take, token: bigint): Promise<boolean> {
    const { affected } = await this.#run(this.#sql.raise(take, token))
    return affected === take.resources.length
  }

  /** Returns those that were extended. */
  async #extendReaders(leases: readonly LeaseRef[]): Promise<readonly LeaseRef[]> {
    let held = leases
    for (let tries = 0; held.length > 0; tries++) {
      const { affected } = await this.#run(this.#sql.extendReaders(held))
      if (affected === new Set(held.flatMap(({ resources }) => resources)).size) break
      if (tries === MOST_TRIES) throw new Error('leases were lost faster than it could be found out which')
      held = held.filter(await this.#reading(held))
    }
    return held
  }

  async #holding(leases: readonly LeaseRef[]): Promise<(lease: LeaseRef) => boolean> {
    const { rows } = await this.#run(this.#sql.held(leases))
    return areIn(rows.map((row) => pair(fromHex(columnText(row, 'resource')), fromHex(columnText(row, 'owner')))))
  }

  async #reading(leases: readonly LeaseRef[]): Promise<(lease: LeaseRef) => boolean> {
    const { rows } = await this.look([...new Set(leases.flatMap(({ resources }) => resources))])
    const readers = rows.filter(({ isShared, remainingMs }) => isShared && remainingMs > 0)
    return areIn(readers.map(({ resource, owner }) => pair(resource, owner ?? '')))
  }
}

function areIn(pairs: readonly string[]): (lease: LeaseRef) => boolean {
  const held = new Set(pairs)
  return ({ resources, owner }) => resources.every((resource) => held.has(pair(resource, owner)))
}

function sizeOf({ resources, owner }: LeaseRef): number {
  return resources.reduce((sum, resource) => sum + Buffer.byteLength(resource), owner.length)
}

/** Neither of the two contains a control character. */
function pair(resource: string, owner: string): string {
  return `${owner}\n${resource}`
}

function tableLook(rows: readonly SqlRow[]): TableLook {
  const clockUs = BigInt(columnText(rows[0], 'clock'))
  return { clockUs, rows: rows.filter(({ token }) => token !== null).flatMap((row) => tableRows(row, clockUs)) }
}

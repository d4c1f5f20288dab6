import type { MachineClock } from '../../clock.ts'
import type { SqliteRow, SqliteStatement } from './client.ts'
import type { Database } from './database.ts'
import type { Machine } from './machine.ts'

/** The next token has not been reserved on the disk yet; see `reserve`. */
export class NotReserved extends Error {}

/** Tokens follow the wall clock in microseconds, and an hour of them is reserved at a time: one write to the disk an hour. */
const RESERVE = 3600 * 1e6
/** A wall clock beyond this, in the year 2112, is wrong. Tokens must stay exact as JavaScript numbers. */
const LAST_WALL_TOKEN = 2 ** 52

/**
 * The source of tokens: one counter for the whole file, so that a free resource needs no row. It follows the wall clock where
 * that is ahead, so tokens keep growing even if the file is removed or replaced by an old copy. Every method is called within
 * a transaction.
 */
export class Counter {
  readonly #database: Database
  readonly #machine: Machine
  readonly #clock: MachineClock

  constructor(database: Database, machine: Machine, clock: MachineClock) {
    this.#database = database
    this.#machine = machine
    this.#clock = clock
  }

  /** Throws `NotReserved`. */
  next(): number {
    const row = this.#row()
    const token = Math.max(Number(row['token']) + 1, this.#wallToken())
    if (row['boot'] !== this.#machine.boot || token > Number(row['reserved'])) throw new NotReserved()
    this.#sql('UPDATE counter SET token = ?').run(token)
    return token
  }

  /**
   * Raises the highest token that may be granted. After a new boot, also raises the last token that counts as granted: after a
   * loss of power the file may be as it was at the last reservation, and every token up to that number may have been granted.
   * Must be written durably.
   */
  reserve(): void {
    const row = this.#row()
    const isSameBoot = row['boot'] === this.#machine.boot
    const token = Math.max(Number(row['token']), isSameBoot ? 0 : Number(row['reserved']))
    const reserved = Math.max(Number(row['reserved']), Math.max(token, this.#wallToken()) + RESERVE)
    this.#sql('UPDATE counter SET token = ?, reserved = ?, boot = ?').run(token, reserved, this.#machine.boot)
  }

  #row(): SqliteRow {
    const row = this.#sql('SELECT * FROM counter').get()
    if (row === undefined) throw new Error('the table of the counter is empty')
    return row
  }

  #wallToken(): number {
    const token = Math.floor(this.#clock.wallMs() * 1000)
    return token > LAST_WALL_TOKEN ? 0 : token
  }

  #sql(text: string): SqliteStatement {
    return this.#database.statement(text)
  }
}

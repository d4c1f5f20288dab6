import type { MachineClock } from '../../clock.ts'
import type { Database } from './database.ts'
import type { Row } from './library.ts'
import type { Machine } from './machine.ts'

/** The counter may not go on before it has been raised on the disk; see `reserve`. */
export class NotReserved extends Error {}

/** Tokens are reserved by the hour (of microseconds, as they follow the wall clock): one write to the disk an hour. */
const RESERVE = 3600 * 1e6
/** A wall clock beyond this, in the year 2112, is wrong; tokens must stay exact as a JavaScript number. */
const LAST_WALL_TOKEN = 2 ** 52

/**
 * Where tokens come from: one counter for the whole file, so that nothing needs to be kept of a resource that is free. It
 * follows the wall clock where that is ahead: if the file is removed or an old copy is put in its place, tokens go on all
 * the same. Everything here is called within a transaction.
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
   * Raises what may be given out, and with a new boot, what counts as given out: after a loss of power the file may be as
   * it was at the last reservation, and every token up to that number may have been seen. Must be written durably.
   */
  reserve(): void {
    const row = this.#row()
    const isSameBoot = row['boot'] === this.#machine.boot
    const token = Math.max(Number(row['token']), isSameBoot ? 0 : Number(row['reserved']))
    const reserved = Math.max(Number(row['reserved']), Math.max(token, this.#wallToken()) + RESERVE)
    this.#sql('UPDATE counter SET token = ?, reserved = ?, boot = ?').run(token, reserved, this.#machine.boot)
  }

  #row(): Row {
    const row = this.#sql('SELECT * FROM counter').get()
    if (row === undefined) throw new Error('the counter is gone from the file')
    return row
  }

  #wallToken(): number {
    const token = Math.floor(this.#clock.wallMs() * 1000)
    return token > LAST_WALL_TOKEN ? 0 : token
  }

  #sql(text: string): ReturnType<Database['statement']> {
    return this.#database.statement(text)
  }
}

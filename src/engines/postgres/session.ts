import type { Clock } from '../../clock.ts'
import { systemRandom } from '../../random.ts'
import { inTime } from '../sql/in-time.ts'
import type { Ears, Line, PostgresClient, PostgresConnection, Row } from './client.ts'
import { recogniseConnection, type PostgresConnectionLike } from './drivers/recognise.ts'
import { PoolerError } from './errors.ts'
import type { Seat } from './lease-table.ts'

/** The server may be frozen for a while and go on; a connection that was silent for longer is given up. */
const SILENT_MS = 10_000
const END_TIMEOUT_MS = 2000
const SECOND_TIMEOUT_MS = 2000
const PID = 'SELECT pg_backend_pid()::text AS pid'

interface Open extends Seat {
  readonly session: string
  readonly connection: PostgresConnection
  readonly pid: string
  isOver: boolean
}

/**
 * One connection of our own that holds an advisory lock with a random number as long as it lives. Leases carry that number:
 * who finds the lock free knows that the session is over and its leases with it. After a loss a new session, with a new
 * number, takes the leases along at their next renewal, unless someone else was faster.
 */
export class Session {
  readonly #connect: () => Promise<PostgresConnectionLike>
  readonly #clock: Clock
  readonly #ended = new Set<() => void>()
  #current: Promise<Open> | undefined
  #answeredMs = 0
  #closed = false

  constructor(connect: () => Promise<PostgresConnectionLike>, clock: Clock) {
    this.#connect = connect
    this.#clock = clock
  }

  /** Calls back whenever the connection was lost. */
  onEnd(ended: () => void): void {
    this.#ended.add(ended)
  }

  readonly seat = (): Promise<Seat> => this.#open()

  readonly query: PostgresClient['query'] = async (text, params) => (await this.#open()).query(text, params)

  async listen(channel: string, ears: Ears): Promise<Line> {
    const { connection } = await this.#open()
    if (connection.listen === undefined) throw new Error(`${connection.driver} does not tell what it hears`)
    return connection.listen(channel, ears)
  }

  async close(): Promise<void> {
    this.#closed = true
    const open = await this.#current?.catch(() => undefined)
    if (open === undefined) return
    this.#give(open)
    // A connection that goes back to a pool would keep the lock.
    await this.#quietly(open.connection.query('SELECT pg_advisory_unlock($1::text::bigint)::text', [open.session]))
    await this.#quietly(open.connection.end())
  }

  #open(): Promise<Open> {
    if (this.#closed) return Promise.reject(new Error('the engine is closed'))
    if (this.#current === undefined) {
      const opening = this.#begin()
      this.#current = opening
      opening.catch(() => (this.#current = undefined))
    }
    return this.#current
  }

  async #begin(): Promise<Open> {
    const connection = await this.#connectInTime(SILENT_MS)
    try {
      return await inTime(this.#clock, this.#occupy(connection), SILENT_MS)
    } catch (error) {
      void this.#quietly(connection.end())
      throw error
    }
  }

  async #occupy(connection: PostgresConnection): Promise<Open> {
    const [first] = await connection.query(PID, [])
    const pid = first?.['pid'] ?? ''
    if (String(await connection.toldPid()) !== pid) await this.#assertOwnServer(connection, pid)
    const session = String(BigInt.asUintN(63, BigInt(`0x${systemRandom.id()}`)))
    const lock = 'SELECT pg_try_advisory_lock($1::text::bigint)::text AS locked, pg_backend_pid()::text AS pid'
    const [row] = await connection.query(lock, [session])
    if (row?.['pid'] !== pid) throw new PoolerError('one connection has changing server processes')
    const query: Open['query'] = (text, params) => this.#query(open, text, params)
    const open: Open = { session, connection, pid, query, isOver: false }
    this.#answeredMs = this.#clock.monotonicMs()
    connection.onEnd?.(() => this.#over(open))
    return open
  }

  /**
   * The connection did not say which process serves it, or something else answers for it. While a second connection is in a
   * transaction, a pooler must have lent it another server's connection than ours, or ours.
   */
  async #assertOwnServer(connection: PostgresConnection, pid: string): Promise<void> {
    // From a pool with one connection there is none to be had.
    const second = await this.#connectInTime(SECOND_TIMEOUT_MS).catch((cause: unknown) => {
      throw new Error('connect() gave no second connection, by which a pooler in between is looked for', { cause })
    })
    try {
      await second.query('BEGIN', [])
      const [other] = await second.query(PID, [])
      if (other?.['pid'] === pid) throw new PoolerError('two connections have the same server process')
      const [again] = await connection.query(PID, [])
      if (again?.['pid'] !== pid) throw new PoolerError('one connection has changing server processes')
      await second.query('ROLLBACK', [])
    } finally {
      await this.#quietly(second.end())
    }
  }

  /** One that comes later than that is closed. */
  async #connectInTime(timeoutMs: number): Promise<PostgresConnection> {
    const connecting = this.#connect().then(recogniseConnection)
    return inTime(this.#clock, connecting, timeoutMs).catch((error: unknown) => {
      connecting.then(
        (late) => this.#quietly(late.end()),
        () => undefined,
      )
      throw error
    })
  }

  async #query(open: Open, text: string, params: readonly (string | null)[]): Promise<readonly Row[]> {
    if (open.isOver) throw new Error('the connection of this session has ended')
    const askedMs = this.#clock.monotonicMs()
    const timer = this.#clock.timer(() => this.#silent(open, askedMs), SILENT_MS, true)
    try {
      const rows = await open.connection.query(text, params)
      this.#answeredMs = this.#clock.monotonicMs()
      const moved = rows.find(({ pid }) => pid !== undefined && pid !== open.pid)
      if (moved === undefined) return rows
      this.#over(open)
      throw new PoolerError('one connection has changing server processes')
    } catch (error) {
      // Drivers that don't tell of the end reject everything from then on.
      if (open.connection.onEnd === undefined && !isServerError(error)) this.#over(open)
      throw error
    } finally {
      timer.cancel()
    }
  }

  #silent(open: Open, askedMs: number): void {
    if (this.#answeredMs > askedMs || open.isOver) return
    this.#over(open)
  }

  #over(open: Open): void {
    if (open.isOver) return
    this.#give(open)
    void this.#quietly(open.connection.end())
    for (const ended of this.#ended) ended()
  }

  #give(open: Open): void {
    open.isOver = true
    this.#current = undefined
  }

  /** A connection that can't be closed is the server's to notice. */
  async #quietly(work: Promise<unknown>): Promise<void> {
    await inTime(this.#clock, work, END_TIMEOUT_MS).catch(() => undefined)
  }
}

function isServerError(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && /^\d\w{4}$/.test(error.code)
}

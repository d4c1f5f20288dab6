import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { Random } from '../../random.ts'
import { inTime } from '../shared/in-time.ts'
import type { SqlQuery } from '../shared/sql/client.ts'
import type { ListenConnection, NotificationListener, PostgresConnection } from './client.ts'
import { recogniseConnection, type PostgresConnectionLike } from './drivers/recognise.ts'
import { PoolerError } from './errors.ts'
import type { LeaseConnection } from './steps.ts'

/** The server may be frozen for a while and go on. A connection that was silent for this long is given up. */
const SILENT_MS = 10_000
const END_TIMEOUT_MS = 2000
const SECOND_TIMEOUT_MS = 2000
const PID = 'SELECT pg_backend_pid()::text AS pid'

interface OpenSession extends LeaseConnection {
  readonly session: string
  readonly connection: PostgresConnection
  readonly pid: string
  isOver: boolean
}

/**
 * One connection of our own that holds an advisory lock with a random number while it lives. Leases carry that number: a
 * process that finds the lock free knows that the session is over and its leases with it. After a loss a new session, with a
 * new number, takes the leases over at their next renewal, unless another process was faster.
 */
export class AdvisorySession {
  readonly #connect: () => Promise<PostgresConnectionLike>
  readonly #random: Random
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #ended = new Set<() => void>()
  #current: Promise<OpenSession> | undefined
  #answeredMs = 0
  #closed = false

  constructor(connect: () => Promise<PostgresConnectionLike>, clock: Clock, random: Random) {
    this.#connect = connect
    this.#random = random
    this.#clock = clock
    this.#deadlines = new Deadlines(clock)
  }

  /** Calls back every time the connection was lost. */
  onEnd(ended: () => void): void {
    this.#ended.add(ended)
  }

  readonly connection = (): Promise<LeaseConnection> => this.#open()

  readonly query: SqlQuery = async (text, params) => (await this.#open()).query(text, params)

  async listen(channel: string, listener: NotificationListener): Promise<ListenConnection> {
    const { connection } = await this.#open()
    if (connection.listen === undefined) throw new Error(`${connection.driver} does not pass on notifications`)
    return connection.listen(channel, listener)
  }

  async close(): Promise<void> {
    this.#closed = true
    const open = await this.#current?.catch(() => undefined)
    if (open === undefined) return
    this.#forget(open)
    // A connection that goes back to a pool would keep the lock.
    await this.#quietly(open.connection.query('SELECT pg_advisory_unlock($1::text::bigint)::text', [open.session]))
    await this.#quietly(open.connection.end())
    this.#deadlines.close()
  }

  #open(): Promise<OpenSession> {
    if (this.#closed) return Promise.reject(new Error('the engine is closed'))
    if (this.#current === undefined) {
      const opening = this.#begin()
      this.#current = opening
      opening.catch(() => (this.#current = undefined))
    }
    return this.#current
  }

  async #begin(): Promise<OpenSession> {
    const connection = await this.#connectInTime(SILENT_MS)
    try {
      return await inTime(this.#occupy(connection), this.#deadlines, SILENT_MS)
    } catch (error) {
      void this.#quietly(connection.end())
      throw error
    }
  }

  async #occupy(connection: PostgresConnection): Promise<OpenSession> {
    const [first] = await connection.query(PID, [])
    const pid = first?.['pid'] ?? ''
    if (String(await connection.announcedPid()) !== pid) await this.#assertOwnServer(connection, pid)
    const session = String(BigInt.asUintN(63, BigInt(`0x${this.#random.id()}`)))
    const lock = 'SELECT pg_try_advisory_lock($1::text::bigint)::text AS locked, pg_backend_pid()::text AS pid'
    const [row] = await connection.query(lock, [session])
    if (row?.['pid'] !== pid) throw new PoolerError('one connection has changing server processes')
    const query: SqlQuery = (text, params) => this.#query(open, text, params)
    const open: OpenSession = { session, connection, pid, query, isOver: false }
    this.#answeredMs = this.#clock.monotonicMs()
    connection.onEnd?.(() => this.#over(open))
    return open
  }

  /**
   * The connection did not announce which process serves it, or another process answers. While a second connection is in a
   * transaction, a pooler must have lent it another server connection than ours, or ours.
   */
  async #assertOwnServer(connection: PostgresConnection, pid: string): Promise<void> {
    // A pool of one connection has no second one.
    const second = await this.#connectInTime(SECOND_TIMEOUT_MS).catch((cause: unknown) => {
      throw new Error(
        'connect() gave no second connection, which is needed to find out whether there is a pooler in between',
        { cause },
      )
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

  /** A connection that comes later is closed. */
  async #connectInTime(timeoutMs: number): Promise<PostgresConnection> {
    const connecting = this.#connect().then(recogniseConnection)
    const late = (): void => {
      connecting.then(
        (connection) => this.#quietly(connection.end()),
        () => undefined,
      )
    }
    return inTime(connecting, this.#deadlines, timeoutMs, { late })
  }

  async #query(open: OpenSession, ...[text, params]: Parameters<SqlQuery>): ReturnType<SqlQuery> {
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
      // Drivers that do not report the end of a connection reject everything from then on.
      if (open.connection.onEnd === undefined && !isServerError(error)) this.#over(open)
      throw error
    } finally {
      timer.cancel()
    }
  }

  #silent(open: OpenSession, askedMs: number): void {
    if (this.#answeredMs > askedMs || open.isOver) return
    this.#over(open)
  }

  #over(open: OpenSession): void {
    if (open.isOver) return
    this.#forget(open)
    void this.#quietly(open.connection.end())
    for (const ended of this.#ended) ended()
  }

  #forget(open: OpenSession): void {
    open.isOver = true
    this.#current = undefined
  }

  /** When a connection cannot be closed, the server notices its end. */
  async #quietly(work: Promise<unknown>): Promise<void> {
    await inTime(work, this.#deadlines, END_TIMEOUT_MS).catch(() => undefined)
  }
}

function isServerError(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && /^\d\w{4}$/.test(error.code)
}

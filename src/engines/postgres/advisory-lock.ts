import { createHash } from 'node:crypto'
import { optionsOrThrow } from '../../arguments.ts'
import { clockOrThrow, type Clock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import { EngineError, HeldError, WaitTimeoutError } from '../../errors.ts'
import type { SqlQuery, SqlRow } from '../shared/sql/client.ts'
import { EndedTransactionError } from '../shared/sql/transaction.ts'
import { recogniseOrThrow, type PostgresTransactional } from './drivers/recognise.ts'
import { sqlState } from './errors.ts'

/** Options of `withAdvisoryLock`. */
export interface AdvisoryLockOptions {
  /** How long to wait for all of the locks together: 0 not at all, Infinity forever. Default 10 s. */
  wait?: Duration
  clock?: Clock
}

/** The number of the advisory lock that stands for a resource, for statements of your own. */
export function advisoryKey(resource: string): bigint {
  if (typeof resource !== 'string' || resource === '') {
    throw new TypeError(`resource: expected a name, got ${shown(resource)}`)
  }
  return createHash('sha256').update(`ringfence:${resource}`).digest().readBigInt64BE()
}

const DEFAULT_WAIT_MS = 10_000

/** A `Client` of pg, which is its own transaction. */
export interface PgClientLike {
  query(...args: never[]): unknown
  escapeIdentifier(text: string): string
}

/**
 * Use it when everything that is protected is in this one database. Runs `work` in a transaction that holds an advisory lock on
 * the resource until it is committed or rolled back. Then no lease, no renewal and no token is needed: the lock cannot end
 * before the transaction, and a transaction that lost its connection changes nothing. `work` gets the driver's own
 * transaction: a client of pg in a transaction, or the `tx` of postgres.js and PGlite.
 *
 * Rejects with `HeldError` (wait: 0) or `WaitTimeoutError`, and with `EngineError` if nothing was committed because the work
 * went on after a failed statement, or if the work has ended the transaction by itself. Several resources are locked in one
 * order, so that two calls never wait for each other; `wait` is for all of them together. Leases of `postgres(client)` are
 * independent of these locks.
 */
export function withAdvisoryLock<Client extends PgClientLike, T>(
  client: Client,
  resource: string | readonly string[],
  work: (tx: Client) => Promise<T>,
  options?: AdvisoryLockOptions,
): Promise<T>
export function withAdvisoryLock<Transaction, T>(
  client: PostgresTransactional<Transaction>,
  resource: string | readonly string[],
  work: (tx: Transaction) => Promise<T>,
  options?: AdvisoryLockOptions,
): Promise<T>
export async function withAdvisoryLock<T>(
  client: unknown,
  resource: string | readonly string[],
  work: (tx: never) => Promise<T>,
  options: AdvisoryLockOptions = {},
): Promise<T> {
  optionsOrThrow(options, ['wait', 'clock'])
  const clock = clockOrThrow(options.clock)
  const waitMs = durationMs(options.wait ?? DEFAULT_WAIT_MS, 'wait', { maxMs: Infinity })
  const names: readonly string[] = typeof resource === 'string' ? [resource] : resource
  if (!Array.isArray(names) || names.length === 0) {
    throw new TypeError(`resource: expected a name or several, got ${shown(resource)}`)
  }
  if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
  const keys = [...new Set(names.map((name) => advisoryKey(name)))].sort((a, b) => (a < b ? -1 : 1))
  const { transaction } = recogniseOrThrow(client)
  if (transaction === undefined) {
    throw new TypeError(
      'client: expected a Pool or Client of pg, sql of postgres.js or a PGlite, got an object of another kind',
    )
  }
  try {
    return await transaction(async (tx, query) => {
      if (waitMs === 0) await takeAll(query, keys, names)
      else await waitForAll(query, keys, names, { waitMs, clock })
      return work(tx as never)
    })
  } catch (error) {
    if (!(error instanceof EndedTransactionError)) throw error
    throw new EngineError(`postgres: ${error.message}`, names, { cause: error, transient: error.transient })
  }
}

async function takeAll(query: SqlQuery, keys: readonly bigint[], resources: readonly string[]): Promise<void> {
  for (const key of keys) if (!(await isTaken(query, key))) throw new HeldError(resources)
}

async function isTaken(query: SqlQuery, key: bigint): Promise<boolean> {
  const text = `SELECT ${REPLICA}, pg_try_advisory_xact_lock($1::text::bigint)::text AS locked`
  const [row] = await query(text, [String(key)])
  throwIfReplica(row)
  return row?.['locked'] === 'true'
}

const REPLICA = 'pg_is_in_recovery()::text AS replica'

/** Locks of a replica are its own: another process may have the same lock on the primary. */
function throwIfReplica(row: SqlRow | undefined): void {
  if (row?.['replica'] !== 'true') return
  throw new EngineError(
    'postgres: a replica has answered, and its locks exclude nobody on the primary: connect to the primary, or keep software that ' +
      'spreads reads over replicas from doing so within transactions',
    [],
    { transient: false },
  )
}

async function waitForAll(
  query: SqlQuery,
  keys: readonly bigint[],
  resources: readonly string[],
  { waitMs, clock }: { readonly waitMs: number; readonly clock: Clock },
): Promise<void> {
  const endMs = clock.monotonicMs() + waitMs
  const [before] = await query("SELECT current_setting('lock_timeout') AS limit_", [])
  const setLimit = (value: string): Promise<unknown> =>
    query("SELECT set_config('lock_timeout', $1::text, true)", [value])
  for (const key of keys) {
    const leftMs = endMs - clock.monotonicMs()
    if (leftMs <= 0) {
      if (await isTaken(query, key)) continue
      throw new WaitTimeoutError(resources, waitMs)
    }
    // 0 is forever.
    await setLimit(waitMs === Infinity ? '0' : String(Math.min(Math.ceil(leftMs), 2 ** 31 - 1)))
    try {
      // Its own answer is void, which not every driver can read.
      const [row] = await query(`SELECT ${REPLICA} FROM pg_advisory_xact_lock($1::text::bigint)`, [String(key)])
      throwIfReplica(row)
    } catch (error) {
      if (sqlState(error) === '55P03') throw new WaitTimeoutError(resources, waitMs)
      throw error
    }
  }
  // The work's own statements wait as long as they did before.
  await setLimit(before?.['limit_'] ?? '0')
}

import { createHash } from 'node:crypto'
import { optionsOrThrow } from '../../arguments.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import { HeldError, WaitTimeoutError } from '../../errors.ts'
import type { PostgresClient } from './client.ts'
import { recogniseOrThrow, type PostgresLike } from './drivers/recognise.ts'
import { sqlState } from './errors.ts'

export interface AdvisoryLockOptions {
  /** How long to wait for whoever has it; 0 not at all, Infinity for ever. Default 10 s. */
  wait?: Duration
}

/** The number of the advisory lock that stands for a resource, for statements of your own. */
export function advisoryKey(resource: string): bigint {
  if (typeof resource !== 'string' || resource === '') {
    throw new TypeError(`resource: expected a name, got ${shown(resource)}`)
  }
  return createHash('sha256').update(`ringfence:${resource}`).digest().readBigInt64BE()
}

const DEFAULT_WAIT_MS = 10_000

/**
 * For when everything that is protected is in this one database: runs `work` in a transaction that holds an advisory lock on
 * the resource until it is committed or rolled back. Then no lease, no renewal and no token is needed: the lock can't end
 * before the transaction, and a transaction that lost its connection changes nothing. `work` is handed the driver's own
 * transaction: a client of pg in a transaction, or the `tx` of postgres.js and PGlite.
 *
 * Rejects with `HeldError` (wait: 0) or `WaitTimeoutError`. Several resources are locked in one order, so that two calls
 * never wait for each other. Leases of `postgres(client)` are another matter: they don't see these locks.
 */
// eslint-disable-next-line no-unnecessary-type-parameters -- the caller knows what the driver hands over
export async function withAdvisoryLock<T, Tx = unknown>(
  client: PostgresLike,
  resource: string | readonly string[],
  work: (tx: Tx) => Promise<T>,
  options: AdvisoryLockOptions = {},
): Promise<T> {
  optionsOrThrow(options, ['wait'])
  const waitMs = durationMs(options.wait ?? DEFAULT_WAIT_MS, 'wait', { maxMs: Infinity })
  const names = typeof resource === 'string' ? [resource] : resource
  if (!Array.isArray(names) || names.length === 0) {
    throw new TypeError(`resource: expected a name or several, got ${shown(resource)}`)
  }
  if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${shown(work)}`)
  const keys = [...new Set(names.map((name) => advisoryKey(name as string)))].sort((a, b) => (a < b ? -1 : 1))
  const { transaction } = recogniseOrThrow(client)
  if (transaction === undefined) {
    throw new TypeError(
      'client: expected a Pool or Client of pg, sql of postgres.js or a PGlite, got an object of another kind',
    )
  }
  return transaction(async (tx, query) => {
    if (waitMs === 0) await takeAll(query, keys, names as string[])
    else await waitForAll(query, keys, names as string[], waitMs)
    return work(tx as Tx)
  })
}

async function takeAll(
  query: PostgresClient['query'],
  keys: readonly bigint[],
  resources: readonly string[],
): Promise<void> {
  for (const key of keys) {
    const [row] = await query('SELECT pg_try_advisory_xact_lock($1::text::bigint)::text AS locked', [String(key)])
    if (row?.['locked'] !== 'true') throw new HeldError(resources)
  }
}

async function waitForAll(
  query: PostgresClient['query'],
  keys: readonly bigint[],
  resources: readonly string[],
  waitMs: number,
): Promise<void> {
  // 0 is for ever. The work's own statements wait as long as they did before.
  const limit = waitMs === Infinity ? '0' : String(Math.min(waitMs, 2 ** 31 - 1))
  const [before] = await query("SELECT current_setting('lock_timeout') AS limit_", [])
  const setLimit = (value: string): Promise<unknown> =>
    query("SELECT set_config('lock_timeout', $1::text, true)", [value])
  await setLimit(limit)
  for (const key of keys) {
    try {
      // Its own answer is void, which not every driver can read.
      await query('SELECT true::text FROM pg_advisory_xact_lock($1::text::bigint)', [String(key)])
    } catch (error) {
      if (sqlState(error) === '55P03') throw new WaitTimeoutError(resources, waitMs)
      throw error
    }
  }
  await setLimit(before?.['limit_'] ?? '0')
}

import type { Clock } from '../../../clock.ts'
import { shown, type Duration } from '../../../duration.ts'
import type { EngineLimits } from '../../../engine.ts'
import type { Random } from '../../../random.ts'
import { driftOrThrow, LONGEST_TTL_MS, requestTimeoutOrThrow } from '../limits.ts'
import { DEFAULT_TABLE, tableParts } from './table-name.ts'

/** A tenth of the ttl, at least 1 s, at most 5 s. */
const TIMEOUT = { divisor: 10, leastMs: 1000, mostMs: 5000 }

/** The options that all engines with a lease table have. */
export interface TableOptions {
  /**
   * The lease table, also with a schema or a database before it: `app.leases`. All processes that exclude one another use the same.
   * Default `ringfence_leases`.
   */
  table?: string
  /**
   * Create the table when it is not there. Default true; `postgresSchema()` and `mariadbSchema()` have the statement for those who
   * migrate by hand.
   */
  createTable?: boolean
  /** How long a statement may take. Default a tenth of the ttl, at least 1 s (half of a shorter ttl), at most 5 s. */
  requestTimeout?: Duration
  /** How much the server's clock may differ in speed from ours, as a part of the ttl. Default 0.01, and 2 ms on top. */
  drift?: number
  clock?: Clock
  random?: Random
}

export const TABLE_OPTIONS = ['table', 'createTable', 'requestTimeout', 'drift', 'clock', 'random']

export interface TableSettings {
  readonly table: string
  readonly createTable: boolean
  readonly timeoutMs: (ttlMs: number) => number
  readonly limits: EngineLimits
}

export function tableSettings(options: TableOptions): TableSettings {
  const { table = DEFAULT_TABLE, createTable = true, requestTimeout, drift } = options
  const name = tableParts(table).join('.')
  return {
    table: name,
    createTable: booleanOrThrow(createTable, 'createTable'),
    timeoutMs: requestTimeoutOrThrow(requestTimeout, TIMEOUT),
    limits: { maxTtlMs: LONGEST_TTL_MS, driftMs: driftOrThrow(drift) },
  }
}

export function booleanOrThrow(value: unknown, option: string): boolean {
  if (typeof value !== 'boolean') throw new TypeError(`${option}: expected true or false, got ${shown(value)}`)
  return value
}

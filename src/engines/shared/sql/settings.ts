import { shown } from '../../../duration.ts'
import type { EngineLimits } from '../../../engine.ts'
import { driftOrThrow, LONGEST_TTL_MS, requestTimeoutOrThrow } from '../limits.ts'
import { DEFAULT_TABLE, tableParts } from './table-name.ts'

/** A tenth of the ttl, at least 1 s, at most 5 s. */
const TIMEOUT = { divisor: 10, leastMs: 1000, mostMs: 5000 }

/** The options that all engines with a lease table have. */
export interface TableOptions {
  readonly table?: unknown
  readonly createTable?: unknown
  readonly requestTimeout?: unknown
  readonly drift?: unknown
}

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

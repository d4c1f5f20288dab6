import { durationMs, shown } from '../../duration.ts'
import type { EngineLimits } from '../../engine.ts'
import { DEFAULT_TABLE, tableParts } from './table-name.ts'

/** A year. Nobody waits for a lock longer than that. */
const LONGEST_TTL_MS = 365 * 86_400_000
const DEFAULT_DRIFT = 0.01
const CLOCK_GRAIN_MS = 2

/** The options that all engines with a lease table have. */
export interface TableOptions {
  readonly table?: unknown
  readonly createTable?: unknown
  readonly timeout?: unknown
  readonly drift?: unknown
}

export interface TableSettings {
  readonly table: string
  readonly createTable: boolean
  /** Undefined: by the ttl. */
  readonly timeoutMs: number | undefined
  readonly limits: EngineLimits
}

export function tableSettings(options: TableOptions): TableSettings {
  const { table = DEFAULT_TABLE, createTable = true, timeout, drift = DEFAULT_DRIFT } = options
  const name = tableParts(table).join('.')
  if (typeof drift !== 'number' || !(drift >= 0 && drift <= 0.5)) {
    throw new RangeError(`drift: expected a part of the ttl from 0 to 0.5, got ${shown(drift)}`)
  }
  return {
    table: name,
    createTable: booleanOrThrow(createTable, 'createTable'),
    timeoutMs: timeout === undefined ? undefined : durationMs(timeout, 'timeout', { minMs: 1, maxMs: 60_000 }),
    limits: { maxTtlMs: LONGEST_TTL_MS, driftMs: (ttlMs) => Math.ceil(ttlMs * drift) + CLOCK_GRAIN_MS },
  }
}

export function booleanOrThrow(value: unknown, option: string): boolean {
  if (typeof value !== 'boolean') throw new TypeError(`${option}: expected true or false, got ${shown(value)}`)
  return value
}

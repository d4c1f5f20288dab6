import { shown } from '../../../duration.ts'

export const DEFAULT_TABLE = 'ringfence_leases'

/** PostgreSQL cuts longer names off silently; MariaDB and MySQL have 64. */
const LONGEST_NAME = 63
const PART = /^[A-Za-z_][A-Za-z0-9_$]*$/

/** The parts of `table` or `schema.table`, which are quoted as they are: upper case stays upper case. */
export function tableParts(table: unknown): readonly string[] {
  const parts = typeof table === 'string' ? table.split('.') : []
  if (parts.length < 1 || parts.length > 2 || !parts.every((part) => PART.test(part) && part.length <= LONGEST_NAME)) {
    throw new TypeError(
      `table: expected a name such as '${DEFAULT_TABLE}' or 'schema.${DEFAULT_TABLE}', of letters, digits, _ and $, got ${shown(table)}`,
    )
  }
  return parts
}

import { AnswerError } from '../errors.ts'
import type { Row } from '../client.ts'

/** Objects and functions alike: postgres.js is a function with methods. */
export function hasMethods<Name extends string>(
  value: unknown,
  ...names: Name[]
): value is Record<Name, (...args: never[]) => unknown> {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false
  return names.every((name) => typeof Reflect.get(value, name) === 'function')
}

/** pg and PGlite answer with an object that has the rows, postgres.js with the rows. */
export function rowsOf(result: unknown): readonly Row[] {
  const rows = Array.isArray(result)
    ? result
    : typeof result === 'object' && result !== null && 'rows' in result
      ? result.rows
      : undefined
  if (Array.isArray(rows)) return rows as Row[]
  throw new AnswerError('expected query(text, params) to answer with { rows } or an array of rows')
}

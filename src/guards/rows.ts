import { shown } from '../duration.ts'
import { passes, type Fence, type Fenced } from './guard.ts'

export type Row = Readonly<Record<string, unknown>>

/** Runs one statement on one connection and gives its rows. */
export type Query = (text: string, params: readonly unknown[]) => Promise<readonly Row[]>

/** For what a driver has but declares differently from version to version. */
export function property(value: unknown, name: string): unknown {
  const holds = (typeof value === 'object' && value !== null) || typeof value === 'function'
  return holds ? Reflect.get(value, name) : undefined
}

export function hasMethods(value: unknown, ...names: readonly string[]): value is object {
  return names.every((name) => typeof property(value, name) === 'function')
}

/** What was given instead of a client. It never shows a value: a URL may hold a password. */
export function whatCame(value: unknown): string {
  if (typeof value === 'string') return 'a string: connect first, and pass the client'
  if (hasMethods(value, 'then')) return 'a promise: await it first'
  return value === null || typeof value !== 'object' ? shown(value) : 'an object of another kind'
}

/** The rows of whatever a driver resolves to: an array of them, `{ rows }`, or rows and fields. */
export function rowsOf(result: unknown): readonly Row[] {
  const rows = Array.isArray(result) ? (Array.isArray(result[0]) ? result[0] : result) : property(result, 'rows')
  return Array.isArray(rows) ? rows : []
}

export function fenceOf(row: Row): Fence {
  return { token: BigInt(String(row['token'])), engine: String(row['engine']) }
}

/** A resource whose fence does not let the lease pass, and that fence. */
export interface Refused {
  readonly resource: string
  readonly seen: Fence
}

/** Of the fences that were read, those that do not let the lease pass, in the lease's own order. */
export function refusedOf(lease: Fenced, rows: readonly Row[], from?: string): readonly Refused[] {
  const fences = new Map(rows.map((row) => [String(row['resource']), fenceOf(row)]))
  return lease.resources.flatMap((resource) => {
    const seen = fences.get(resource)
    return seen === undefined || passes(lease, seen, from) ? [] : [{ resource, seen }]
  })
}

/** How many rows a statement has written, as each driver says it. */
export function rowCount(result: unknown): number {
  // mysql2 resolves to a header and the fields; postgres.js to an array with a count.
  const header: unknown = Array.isArray(result) && !('count' in result) ? result[0] : result
  const counts = ['rowCount', 'count', 'affectedRows'].map((name) => property(header, name))
  const count = typeof header === 'number' || typeof header === 'bigint' ? header : counts.find((n) => n !== undefined)
  if (typeof count === 'number' || typeof count === 'bigint') return Number(count)
  throw new TypeError(`result: expected what the driver resolves an UPDATE to, or a row count, got ${shown(result)}`)
}

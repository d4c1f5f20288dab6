import { shown } from '../duration.ts'
import { property } from '../engines/shared/shape.ts'
import { passes, type Fence, type Fenced } from './guard.ts'

/** A row, or a document, that has a fence in it. */
export type FenceRow = Readonly<Record<string, unknown>>

export function fenceOf(row: FenceRow): Fence {
  return { token: BigInt(String(row['token'])), engine: String(row['engine']) }
}

/** A resource whose fence does not let the lease pass, and that fence. */
export interface RefusedResource {
  readonly resource: string
  readonly seen: Fence
}

/** Of the fences that were read, those that do not let the lease pass, in the lease's own order. */
export function refusedOf(lease: Fenced, rows: readonly FenceRow[], from?: string): readonly RefusedResource[] {
  const fences = new Map(rows.map((row) => [String(row['resource']), fenceOf(row)]))
  return lease.resources.flatMap((resource) => {
    const seen = fences.get(resource)
    return seen === undefined || passes(lease, seen, from) ? [] : [{ resource, seen }]
  })
}

/** Returns how many rows a statement has written, from the answer of any driver. */
export function rowCount(result: unknown): number {
  // mysql2 resolves to a header and the fields; postgres.js to an array with a count.
  const header: unknown = Array.isArray(result) && !('count' in result) ? result[0] : result
  const counts = ['rowCount', 'count', 'affectedRows'].map((name) => property(header, name))
  const count = typeof header === 'number' || typeof header === 'bigint' ? header : counts.find((n) => n !== undefined)
  if (typeof count === 'number' || typeof count === 'bigint') return Number(count)
  throw new TypeError(`result: expected what the driver resolves an UPDATE to, or a row count, got ${shown(result)}`)
}

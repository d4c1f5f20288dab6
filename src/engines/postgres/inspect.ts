import { columnText, type SqlRow } from '../shared/sql/client.ts'
import { PAGE, type LeasePage } from '../shared/sql/steps.ts'

/** One page of what is held, from its rows. */
export function postgresPage(rows: readonly SqlRow[]): LeasePage {
  const names = new Set(rows.map((row) => columnText(row, 'resource')))
  const leases = rows
    .filter(({ owner }) => owner !== null)
    .map((row) => ({
      resource: columnText(row, 'resource'),
      owner: columnText(row, 'owner'),
      token: BigInt(columnText(row, 'token')),
      remainingMs: Number(columnText(row, 'remaining')),
      heldMs: Number(columnText(row, 'held')),
      ...(row['shared'] === 'true' ? { shared: true } : {}),
    }))
  return { leases, next: names.size < PAGE ? undefined : [...names].at(-1) }
}

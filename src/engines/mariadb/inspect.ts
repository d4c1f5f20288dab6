import type { LeaseInfo } from '../../engine.ts'
import { columnText, type SqlRow } from '../shared/sql/client.ts'
import { PAGE, type LeasePage } from '../shared/sql/steps.ts'
import { fromHex } from './client.ts'
import { tableRows } from './readers.ts'

/** One page of what is held, from its rows. */
export function mariadbPage(rows: readonly SqlRow[]): LeasePage {
  const leases = rows.flatMap((row) => {
    const clockUs = BigInt(columnText(row, 'clock'))
    return tableRows(row, clockUs).flatMap((holder): LeaseInfo[] => {
      const { owner, token, remainingMs, isShared, sinceUs } = holder
      if (owner === undefined) return []
      const heldMs =
        sinceUs === undefined ? Number(columnText(row, 'held')) : Math.floor((Number(clockUs) - sinceUs) / 1000)
      return [{ resource: holder.resource, owner, token, remainingMs, heldMs, ...(isShared ? { shared: true } : {}) }]
    })
  })
  const last = rows.at(-1)
  return { leases, next: rows.length < PAGE ? undefined : fromHex(columnText(last, 'resource')) }
}

import type { MachineClock } from '../../clock.ts'
import type { InLine, LeaseInfo } from '../../engine.ts'
import type { Database } from './database.ts'
import type { Liveness, StoredLease, StoredTicket } from './liveness.ts'

/** The leases that have not ended, on one resource or on all. */
export function inspectFile(
  database: Database,
  liveness: Liveness,
  clock: MachineClock,
  resource?: string,
): LeaseInfo[] {
  const rows =
    resource === undefined
      ? database.statement('SELECT * FROM lease ORDER BY resource, token').all()
      : database.statement('SELECT * FROM lease WHERE resource = ? ORDER BY token').all(resource)
  const now = liveness.nowMs()
  return (rows as unknown as readonly StoredLease[])
    .filter((row) => !liveness.isOver(row))
    .map((row) => ({
      resource: row.resource,
      owner: row.owner,
      token: BigInt(row.token),
      remainingMs: row.until_ms - now,
      ...(row.shared ? { shared: true } : {}),
      heldMs: now - row.since_ms,
      ...waitersFor(database, liveness, clock, row.resource),
    }))
}

function waitersFor(
  database: Database,
  liveness: Liveness,
  clock: MachineClock,
  resource: string,
): Pick<LeaseInfo, 'waiters' | 'line'> {
  const sql = 'SELECT ticket.* FROM queue JOIN ticket USING (number) WHERE resource = ? ORDER BY number'
  const tickets = database.statement(sql).all(resource) as unknown as readonly StoredTicket[]
  const [now, wallMs] = [liveness.nowMs(), clock.wallMs()]
  const line = tickets
    .filter((ticket) => !liveness.hasLeft(ticket))
    .map(({ owner, number }): InLine => ({ owner, since: Math.round(wallMs - (now - number / 1000)) }))
  return { waiters: line.length, ...(line.length > 0 ? { line } : {}) }
}

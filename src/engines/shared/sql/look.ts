import type { Refusal } from '../../../engine.ts'
import { COME_AGAIN_MS } from '../wanted.ts'
import type { TableLook, TableRow, Take } from './steps.ts'

/** A lease that ends with a session may end at any time without a notification; waiters look this often. */
const LOOK_EVERY_MS = 500

/** What keeps a request out. */
export interface RowInTheWay {
  readonly row: TableRow
  /** How much longer, if nobody releases. */
  readonly leftMs: number
  /** Readers are among those in the way of a writer. */
  readonly hasReaders: boolean
}

/** Of what is in the way, that which lasts longest. */
export function blockerOf(look: TableLook, { resources, owner, shared = false }: Take): RowInTheWay | undefined {
  if (ownRows(look, owner).length === resources.length) return undefined
  let blocker: { row: TableRow; leftMs: number } | undefined
  let hasReaders = false
  for (const row of look.rows) {
    const isHeld = isLive(row) && row.owner !== owner
    if (isHeld && row.isShared && !shared) hasReaders = true
    const heldMs = isHeld && !(row.isShared && shared) ? row.remainingMs : 0
    const leftMs = Math.max(heldMs, shared ? row.wantedMs : 0)
    if (leftMs > (blocker?.leftMs ?? 0)) blocker = { row, leftMs }
  }
  return blocker === undefined ? undefined : { ...blocker, hasReaders }
}

/** The rows that are the owner's now. */
export function ownRows({ rows }: TableLook, owner: string): readonly TableRow[] {
  return rows.filter((row) => row.owner === owner && row.remainingMs > 0)
}

/** `comesAgain`: a writer that waits for readers, and keeps later ones out as long as it comes again. */
export function refusal({ row, leftMs }: RowInTheWay, comesAgain: boolean): Refusal {
  const { owner, session } = row
  const mostMs = Math.min(session === undefined ? Infinity : LOOK_EVERY_MS, comesAgain ? COME_AGAIN_MS : Infinity)
  const remainingMs = Math.min(leftMs, mostMs)
  return { kind: 'refused', reason: 'held', ...(owner === undefined ? {} : { holder: owner }), remainingMs }
}

/**
 * Above all counters, and not below the clock: a failover to a replica that lacks the last grants, a restored backup or a
 * deleted row would otherwise lead to the same token twice. A reader that joins others everywhere gets their number: there was no
 * writer in between.
 */
export function nextToken({ clockUs, rows }: TableLook, { resources, shared = false }: Take): bigint {
  const joined = new Set(rows.filter((row) => row.isShared && isLive(row)).map(({ resource }) => resource))
  const counters = new Set(rows.map(({ counter }) => counter))
  if (shared && joined.size === resources.length && counters.size === 1) return rows[0]!.counter
  let token = clockUs
  for (const counter of counters) if (counter >= token) token = counter + 1n
  return token
}

function isLive({ owner, isEnded, remainingMs }: TableRow): boolean {
  return owner !== undefined && !isEnded && remainingMs > 0
}

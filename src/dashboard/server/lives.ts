import type { LifeRow } from '../protocol.ts'
import type { KnownLease } from './board.ts'
import { labelOf, STAGES, type Happened } from './history.ts'

/** More than that are not to be told apart in a picture. */
const MOST_LIVES = 12

/** The leases that a history tells of, and those that are held, each from its beginning to its end; the oldest first. */
export function livesOf(past: readonly Happened[], held: readonly KnownLease[], nowMs: number): LifeRow[] {
  const leases = new Map<string, { owner: string; token: bigint; begin?: Happened; end?: Happened }>()
  for (const happened of past) {
    const { owner, token, type } = happened
    const lease = leases.get(`${token} ${owner}`) ?? { owner, token }
    leases.set(`${token} ${owner}`, lease)
    const stage = STAGES[type]
    if (stage !== 'extended') lease[stage] = happened
  }
  for (const { owner, token } of held)
    if (!leases.has(`${token} ${owner}`)) leases.set(`${token} ${owner}`, { owner, token })
  const ago = (atMs: number): number => Math.max(0, Math.round(nowMs - atMs))
  const all = [...leases.values()]
  const lives = all.map(({ owner, token, begin, end: seenEnd }, index): LifeRow => {
    const row = held.find((one) => one.owner === owner && one.token === token)
    // Nobody sees the end of a lease that is handed over: it is the beginning of the next one.
    const follower = all.slice(index + 1).find((other) => other.begin !== undefined)?.begin
    const isHandedOver = row === undefined && follower?.type === 'handed over'
    const end = seenEnd ?? (isHandedOver ? follower : undefined)
    const marks = row?.marks ?? seenEnd?.marks ?? begin?.marks
    const beganAtMs = begin?.atMs ?? row?.sinceMs
    return {
      owner,
      label: labelOf(owner),
      token: String(token),
      beganMs: beganAtMs === undefined ? null : ago(beganAtMs),
      began: (begin?.type ?? 'seen') as LifeRow['began'],
      beganExact: begin?.exact ?? row?.heldExact ?? false,
      endedMs: end === undefined ? (row === undefined ? ago(begin?.atMs ?? nowMs) : null) : ago(end.atMs),
      ended: (end?.type ?? null) as LifeRow['ended'],
      endedExact: end?.exact ?? false,
      renewals: (marks?.renewals ?? []).map(ago),
      renewed: marks?.renewed ?? 0,
      renewalsExact: marks?.isHeard ?? false,
      doubts: (marks?.doubts ?? []).map(ago),
    }
  })
  return lives.slice(-MOST_LIVES)
}

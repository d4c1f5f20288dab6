import type { History } from '../history.ts'

/** One lease as its holder saw it, in true time. */
export interface HeldLease {
  readonly process: string
  readonly owner: string
  readonly token: number
  readonly resources: readonly string[]
  readonly shared: boolean
  /** When the attempt began that was granted. */
  readonly beganMs: number
  /** When it was in the caller's hands. */
  readonly fromMs: number
  /** When the holder stopped to believe in it: given back, lost, or validity over; or when somebody took it away, if that was before. */
  endMs: number
  /** End of validity, after the last renewal. */
  untilMs: number
  ends: { atMs: number; why: string } | undefined
  signalMs: number | undefined
}

export function leasesOf(history: History): HeldLease[] {
  const leases = new Map<string, HeldLease>()
  const attempts = new Map<string, number>()
  const crashes = new Map<string, number>()
  for (const event of history.of('attempt', 'crash', 'holds', 'until', 'ends', 'signal')) {
    if (event.kind === 'attempt') attempts.set(event.owner, event.at)
    else if (event.kind === 'crash') crashes.set(event.process, event.at)
    else if (event.kind === 'holds') {
      const { process, owner, token, resources, at, untilMs, call, shared = false } = event
      const beganMs = attempts.get(owner) ?? at
      // An owner that comes twice is two acquisitions.
      const name = leases.has(owner) ? `${owner}#${call}` : owner
      const open = { ends: undefined, signalMs: undefined }
      leases.set(name, {
        process,
        owner,
        token,
        resources,
        shared,
        beganMs,
        fromMs: at,
        endMs: untilMs,
        untilMs,
        ...open,
      })
    } else {
      const lease = leases.get(event.owner)
      if (lease === undefined) continue
      if (event.kind === 'until') lease.untilMs = event.untilMs
      if (event.kind === 'ends') lease.ends ??= { atMs: event.at, why: event.why }
      if (event.kind === 'signal') lease.signalMs ??= event.at
    }
  }
  for (const lease of leases.values()) {
    lease.endMs = Math.min(lease.untilMs, lease.ends?.atMs ?? Infinity, crashes.get(lease.process) ?? Infinity)
  }
  // Taken from its holder, who learns that at the next renewal only.
  const takenAway = (owner: string, at: number): void => {
    const lease = leases.get(owner)
    if (lease !== undefined) lease.endMs = Math.min(lease.endMs, at)
  }
  for (const event of history.of('adopted', 'forced')) {
    if (event.kind === 'adopted') takenAway(event.former, attempts.get(event.owner) ?? event.at)
    else {
      takenAway(event.owner, event.at)
      // It may have been moved from there by an adoption that has no answer yet.
      for (const move of history.of('send'))
        if (move.owner === event.owner && move.former !== '') takenAway(move.former, event.at)
    }
  }
  return [...leases.values()]
}

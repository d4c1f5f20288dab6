import type { History } from '../history.ts'

/** One lease as its holder saw it, in true time. */
export interface HeldLease {
  readonly process: string
  readonly owner: string
  readonly token: number
  readonly resources: readonly string[]
  /** When the attempt began that was granted. */
  readonly beganMs: number
  /** When it was in the caller's hands. */
  readonly fromMs: number
  /** When the holder stopped to believe in it: given back, lost, or validity over. */
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
  for (const event of history.events) {
    switch (event.kind) {
      case 'attempt':
        attempts.set(event.owner, event.at)
        break
      case 'crash':
        crashes.set(event.process, event.at)
        break
      case 'holds': {
        const { process, owner, token, resources, at, untilMs, call } = event
        const beganMs = attempts.get(owner) ?? at
        // An owner that comes twice is two acquisitions all the same.
        const name = leases.has(owner) ? `${owner}#${call}` : owner
        leases.set(name, {
          process,
          owner,
          token,
          resources,
          beganMs,
          fromMs: at,
          endMs: untilMs,
          untilMs,
          ends: undefined,
          signalMs: undefined,
        })
        break
      }
      case 'until': {
        const lease = leases.get(event.owner)
        if (lease !== undefined) lease.untilMs = event.untilMs
        break
      }
      case 'ends': {
        const lease = leases.get(event.owner)
        if (lease !== undefined) lease.ends ??= { atMs: event.at, why: event.why }
        break
      }
      case 'signal': {
        const lease = leases.get(event.owner)
        if (lease !== undefined) lease.signalMs ??= event.at
        break
      }
      default:
    }
  }
  for (const lease of leases.values()) {
    lease.endMs = Math.min(lease.untilMs, lease.ends?.atMs ?? Infinity, crashes.get(lease.process) ?? Infinity)
  }
  return [...leases.values()]
}

import { systemClock } from '../../clock.ts'
import { readOr } from './processes.ts'

/**
 * A point in time that other processes of this machine understand, shells too. On Linux that is the time since boot of
 * `/proc/uptime`: nobody can set it, and it goes on while the machine sleeps. Elsewhere a shell knows the wall clock alone.
 */
export interface SharedTime {
  readonly clock: 'uptime' | 'unix'
  readonly ms: number
}

export function sharedNow(): SharedTime {
  const uptime = readOr('/proc/uptime')
  if (uptime === undefined) return { clock: 'unix', ms: systemClock.wallMs() }
  return { clock: 'uptime', ms: Math.round(Number.parseFloat(uptime) * 1000) }
}

import { readFileSync } from 'node:fs'
import { systemClock } from '../../clock.ts'

/**
 * A point in time that other processes of this machine understand, shells too. On Linux that is the time since boot of
 * `/proc/uptime`: nobody can set it, and it goes on while the machine sleeps. Elsewhere a shell knows the wall clock alone.
 */
export interface SharedTime {
  readonly clock: 'uptime' | 'unix'
  readonly ms: number
}

export function sharedNow(): SharedTime {
  const uptime = uptimeMs()
  return uptime === undefined ? { clock: 'unix', ms: systemClock.wallMs() } : { clock: 'uptime', ms: uptime }
}

function uptimeMs(): number | undefined {
  try {
    return Math.round(Number.parseFloat(readFileSync('/proc/uptime', 'latin1')) * 1000)
  } catch {
    return undefined
  }
}

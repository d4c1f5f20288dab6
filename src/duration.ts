type Unit = 'ms' | 's' | 'm' | 'h' | 'd'

/** Milliseconds, or a number with a unit: `'250ms'`, `'30s'`, `'5m'`, `'1h'`, `'7d'`. */
export type Duration = number | `${number}${Unit}`

const UNIT_MS: Record<Unit, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

export interface DurationLimits {
  readonly minMs?: number
  readonly maxMs?: number
  /** The next step for a duration below `minMs`. */
  readonly shorter?: string
  /** The next step for a duration above `maxMs`. */
  readonly longer?: string
}

/** Reads a duration as whole milliseconds (rounded up); the error names the option, what was expected and what came. */
export function durationMs(value: unknown, option: string, limits: DurationLimits = {}): number {
  const { minMs = 0, maxMs = Number.MAX_SAFE_INTEGER } = limits
  const ms = typeof value === 'string' ? parse(value) : value
  if (typeof ms !== 'number' || Number.isNaN(ms)) {
    const endless = maxMs === Infinity ? ', or Infinity' : ''
    throw new TypeError(
      `${option}: expected a number of milliseconds or a text such as '250ms', '30s', '5m', '1h'${endless}, got ${shown(value)}`,
    )
  }
  const whole = Math.ceil(ms)
  if (ms < minMs || whole > maxMs) {
    const nextStep = ms < minMs ? limits.shorter : limits.longer
    const hint = nextStep === undefined ? '' : `; ${nextStep}`
    throw new RangeError(`${option}: expected ${range(minMs, maxMs)}, got ${shown(value)}${hint}`)
  }
  return whole
}

function parse(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text)
  return match === null ? undefined : Number(match[1]) * UNIT_MS[match[2] as Unit]
}

export function isDuration(text: string): boolean {
  return parse(text) !== undefined
}

function range(minMs: number, maxMs: number): string {
  return maxMs >= Number.MAX_SAFE_INTEGER ? `at least ${inUnits(minMs)}` : `${inUnits(minMs)} to ${inUnits(maxMs)}`
}

/** '50 ms', '1 s', '90 s', '5 min', '365 d': a whole number of the largest unit; of units longer than a second, at least two. */
export function inUnits(ms: number): string {
  const units: readonly (readonly [name: string, unitMs: number, least: number])[] = [
    ['d', UNIT_MS.d, 2],
    ['h', UNIT_MS.h, 2],
    ['min', UNIT_MS.m, 2],
    ['s', UNIT_MS.s, 1],
  ]
  const fitting = units.find(([, unitMs, least]) => ms % unitMs === 0 && ms >= unitMs * least)
  return fitting === undefined ? `${ms} ms` : `${ms / fitting[1]} ${fitting[0]}`
}

/** A time that was measured: '1.5 s', '250 ms', '2 min 5 s', '3 h 20 min'. */
export function span(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** A value as an error message shows it: quoted and shortened. Never throws. */
export function shown(value: unknown): string {
  if (typeof value === 'string') {
    const short = value.length > 60 ? `${value.slice(0, 60)}…` : value
    // A line break or an escape sequence would be printed as it is.
    return /\p{Cc}/u.test(short) ? JSON.stringify(short) : `'${short}'`
  }
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object'
  return String(value)
}

type Unit = 'ms' | 's' | 'm' | 'h' | 'd'

/** Milliseconds, or a number with a unit: `'250ms'`, `'30s'`, `'5m'`, `'1h'`, `'7d'`. */
export type Duration = number | `${number}${Unit}`

const UNIT_MS: Record<Unit, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

export interface DurationLimits {
  readonly minMs?: number
  readonly maxMs?: number
}

/** Reads a duration as whole milliseconds (rounded up); the error names the option, what was expected and what came. */
export function durationMs(value: unknown, option: string, limits: DurationLimits = {}): number {
  const { minMs = 0, maxMs = Number.MAX_SAFE_INTEGER } = limits
  const ms = typeof value === 'string' ? parse(value) : value
  if (typeof ms !== 'number' || Number.isNaN(ms)) {
    throw new TypeError(
      `${option}: expected milliseconds or a duration such as '250ms', '30s', '5m', '1h', got ${shown(value)}`,
    )
  }
  const whole = Math.ceil(ms)
  if (ms < minMs || whole > maxMs) {
    throw new RangeError(`${option}: expected ${range(minMs, maxMs)}, got ${shown(value)}`)
  }
  return whole
}

function parse(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text)
  return match === null ? undefined : Number(match[1]) * UNIT_MS[match[2] as Unit]
}

function range(minMs: number, maxMs: number): string {
  return maxMs >= Number.MAX_SAFE_INTEGER ? `at least ${minMs} ms` : `${minMs} ms to ${maxMs} ms`
}

/** A value as an error message shows it: quoted, shortened, never thrown over. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return `'${value.length > 60 ? `${value.slice(0, 60)}…` : value}'`
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object'
  return String(value)
}

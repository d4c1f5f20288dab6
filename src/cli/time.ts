import { durationMs, isDuration, shown, type DurationLimits } from '../duration.ts'
import { usage } from './exit-codes.ts'

/** Reads a whole number that was given on the command line. */
export function numberOf(text: string, option: string, least: number, most: number, next?: string): number {
  const number = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (number >= least && number <= most) return number
  throw usage(`${option}: expected a whole number from ${least} to ${most}, got ${shown(text)}`, next)
}

/** Reads a time that was given on the command line or in a config file, where a bare number has no unit. */
export function timeOf(text: string, option: string, limits: DurationLimits = {}): number {
  if (isDuration(text)) return durationMs(text, option, limits)
  const guess = /^\d+(\.\d+)?$/.test(text) ? ` (${text}s? ${text}ms?)` : ''
  throw usage(`${option}: expected a time with a unit, such as 250ms, 30s, 5m, 1h; got ${shown(text)}${guess}`)
}

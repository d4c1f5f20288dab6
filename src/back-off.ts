import type { Random } from './random.ts'

/** Pauses that grow: the first is `firstMs`, each is `factor` times the one before, and none is longer than `mostMs`. */
export interface BackOff {
  readonly firstMs: number
  readonly mostMs: number
  /** Default 2. */
  readonly factor?: number
}

/** How long to pause after this many earlier failures: somewhere in the last half of the pause, so that many do not come at once. */
export function backOffMs(random: Random, { firstMs, mostMs, factor = 2 }: BackOff, failures: number): number {
  const longestMs = Math.min(firstMs * factor ** Math.min(failures, 30), mostMs)
  return longestMs * (0.5 + 0.5 * random.fraction())
}

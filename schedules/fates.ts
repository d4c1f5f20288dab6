import type { Seeded } from '../sim/random.ts'
import type { CourierParts, Words } from './courier.ts'
import type { FateName, Plan } from './plan.ts'

/** What becomes of a request and its answer. */
export interface Fate {
  readonly kind: FateName | 'prompt'
  /** Until the request or its answer goes on, or until the driver notices that it does not. */
  readonly ms: number
  /** How much later than that it reaches the server in spite of that. */
  readonly lateMs: number
}

export const PROMPT: Fate = { kind: 'prompt', ms: 0, lateMs: 0 }

export function drawFate(random: Seeded, { fates, ttlMs }: Plan): Fate {
  let left = random.fraction()
  for (const [kind, chance] of Object.entries(fates) as [FateName, number][]) {
    left -= chance
    if (left >= 0) continue
    const isLate = kind === 'late request' || kind === 'sent again'
    return { kind, ms: someMs(random, ttlMs), lateMs: isLate ? someMs(random, ttlMs) : 0 }
  }
  return PROMPT
}

/** A moment, a part of a lease's time, or more than that. */
function someMs(random: Seeded, ttlMs: number): number {
  return random.pick([random.between(0, 30), random.between(0, 0.3) * ttlMs, random.between(0.3, 1.5) * ttlMs])
}

export function recordFate(
  { history, process }: CourierParts,
  { kind: name, ms, lateMs }: Fate,
  at: number,
  { what }: Words,
): void {
  const late = lateMs > 0 ? { lateMs } : {}
  const text = JSON.stringify({ kind: `${name}: ${what}`, ms, ...late })
  history.add({ at, kind: 'fault', name, on: process.name, text, ms })
}

export function travelMs({ latency: { baseMs, jitterMs } }: Plan, random: Seeded): number {
  return baseMs + jitterMs * random.fraction()
}

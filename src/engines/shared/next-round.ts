import { elapsedMs, instant, type Clock } from '../../clock.ts'
import type { Grant, LeaseRequest, Refusal } from '../../engine.ts'

/** How often an attempt that nobody has won is made again at once; a rival that keeps winning shows up as the holder instead. */
const MOST_ROUNDS = 8
/** No caller waits longer than this between two rounds. */
const LONGEST_PAUSE_MS = 50

/**
 * Says when the next round of an attempt that nobody has won is due, up to the last round. Rivals separate by waiting a random
 * part of that time each: up to the time of some attempts, longer every round.
 */
export function withNextRound(refusal: Refusal, { round = 0 }: LeaseRequest, tookMs: number): Refusal {
  if (refusal.reason === 'held' || round >= MOST_ROUNDS) return refusal
  return { ...refusal, retryWithinMs: Math.min(tookMs * 2 ** Math.min(round, 4), LONGEST_PAUSE_MS) }
}

/** An attempt on servers that order all writes: rivals that get in each other's way are rare, and try again. */
export async function inRounds(
  clock: Clock,
  request: LeaseRequest,
  attempt: () => Promise<Grant | Refusal>,
): Promise<Grant | Refusal> {
  const began = instant(clock)
  const outcome = await attempt()
  return outcome.kind === 'granted' ? outcome : withNextRound(outcome, request, elapsedMs(clock, began))
}

import type { LeaseRequest } from '../../engine.ts'

/**
 * Whether to ask the first node alone, and the others only if it votes for us: then the first node decides the race. Every
 * fourth round asks all nodes at once, because the first node may be the only one that still has a dead rival's key.
 */
export function asksInOrder({ round = 0, contended = false }: LeaseRequest): boolean {
  return round === 0 ? contended : round % 4 !== 0
}

import type { Clock } from '../../clock.ts'
import type { NodeState } from '../../engine.ts'
import { messageOf } from '../../errors.ts'

/**
 * How a server answers one question now. `ask` returns its time in ms since 1970, or undefined where it does not tell, and
 * rejects in bounded time where it does not answer. Never rejects itself.
 */
export async function probed(
  node: string,
  clock: Clock,
  ask: () => Promise<number | undefined>,
  reasonOf: (error: unknown) => string = messageOf,
): Promise<NodeState> {
  const sentWallMs = clock.wallMs()
  const sentMs = clock.monotonicMs()
  try {
    const serverMs = await ask()
    const roundTripMs = clock.monotonicMs() - sentMs
    const clockOffsetMs = serverMs === undefined ? undefined : serverMs - (sentWallMs + roundTripMs / 2)
    return { node, roundTripMs, clockOffsetMs }
  } catch (error) {
    return silent(node, reasonOf(error))
  }
}

/** A server that does not answer, and why. */
export function silent(node: string, error: string): NodeState {
  return { node, roundTripMs: undefined, clockOffsetMs: undefined, error }
}

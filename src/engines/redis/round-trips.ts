import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { RoundTrip } from '../../engine.ts'

/** Only the first call counts. */
export type Landed = (outcome: RoundTrip['outcome'], cause?: unknown) => void

/**
 * The commands on their way to one node, for observers. They have a deadline of their own: a decision of the other nodes
 * cancels the engine's deadline, so that a frozen node of five would never be reported.
 */
export class RoundTrips {
  readonly #node: string
  readonly #clock: Clock
  readonly #deadlines: Deadlines
  readonly #silentAfterMs: number
  readonly #tell: (event: RoundTrip) => void

  constructor(node: string, clock: Clock, silentAfterMs: number, tell: (event: RoundTrip) => void) {
    this.#node = node
    this.#clock = clock
    this.#deadlines = new Deadlines(clock)
    this.#silentAfterMs = silentAfterMs
    this.#tell = tell
  }

  /** A command is sent; the function is to be called with what became of it. */
  begin(operation: string): Landed {
    const sinceMs = this.#clock.monotonicMs()
    let isOpen = true
    const land = (outcome: RoundTrip['outcome'], cause?: unknown): void => {
      if (!isOpen) return
      isOpen = false
      deadline.cancel()
      const tookMs = this.#clock.monotonicMs() - sinceMs
      const why = cause instanceof Error ? { cause } : {}
      this.#tell({ type: 'roundTrip', node: this.#node, operation, outcome, tookMs, ...why })
    }
    const deadline = this.#deadlines.start(this.#silentAfterMs, () => land('silent'))
    return land
  }

  close(): void {
    this.#deadlines.close()
  }
}

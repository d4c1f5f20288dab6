import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { RoundTrip } from '../../engine.ts'

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

  follow<T>(operation: string, send: () => Promise<T>): Promise<T> {
    const sinceMs = this.#clock.monotonicMs()
    let isOpen = true
    const land = (outcome: RoundTrip['outcome'], cause?: unknown): void => {
      if (!isOpen) return
      isOpen = false
      const tookMs = this.#clock.monotonicMs() - sinceMs
      const why = cause instanceof Error ? { cause } : {}
      this.#tell({ type: 'roundTrip', node: this.#node, operation, outcome, tookMs, ...why })
    }
    const deadline = this.#deadlines.start(this.#silentAfterMs, () => land('silent'))
    const answer = send()
    answer.then(
      () => {
        deadline.cancel()
        land('answered')
      },
      (cause: unknown) => {
        deadline.cancel()
        land('failed', cause)
      },
    )
    return answer
  }

  close(): void {
    this.#deadlines.close()
  }
}

import type { Clock } from '../../../clock.ts'
import { Deadlines } from '../../../deadlines.ts'
import { asError } from '../../../errors.ts'
import { bounded, type RequestBounds } from '../steps.ts'

/** What a server answered to a command, or why it did not. */
export type CommandResult = CommandReply | { readonly kind: 'error'; readonly error: Error }

export interface CommandReply {
  readonly kind: 'reply'
  readonly value: Readonly<Record<string, unknown>>
  readonly tookMs: number
  /** When the answer came. */
  readonly wallMs: number
}

/** Also time for a new connection, and for finding the primary. */
const TIMEOUT_MS = 3000

/** Sends the doctor's commands, each with a deadline. Never rejects. */
export class DoctorCommands {
  readonly #clock: Clock
  readonly #deadlines: Deadlines

  constructor(clock: Clock) {
    this.#clock = clock
    this.#deadlines = new Deadlines(clock)
  }

  async send(command: (bounds: RequestBounds) => Promise<unknown>): Promise<CommandResult> {
    const beganMs = this.#clock.monotonicMs()
    try {
      const value = (await bounded(this.#deadlines, TIMEOUT_MS, command)) as Record<string, unknown>
      return { kind: 'reply', value, tookMs: this.#clock.monotonicMs() - beganMs, wallMs: this.#clock.wallMs() }
    } catch (error) {
      return { kind: 'error', error: asError(error) }
    }
  }

  close(): void {
    this.#deadlines.close()
  }
}

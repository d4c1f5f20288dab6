import { RefusedError } from './driver.ts'
import type { Line } from './line.ts'
import type { Session } from './session.ts'

/**
 * What may be there although nobody wants it: nodes whose creation or removal was never confirmed. They would last as
 * long as this process does, so they are looked for as soon as there is a connection, and again until that was answered.
 * What was sent on an earlier connection can't be done later than that (see `Line.settle`). Ends with the session, whose
 * end removes them all.
 */
export class Remains {
  readonly #session: Session
  readonly #line: Line
  readonly #withinMs: number
  readonly #owners = new Map<string, readonly string[]>()
  #busy = false

  constructor(session: Session, line: Line, withinMs: number) {
    this.#session = session
    this.#line = line
    this.#withinMs = withinMs
    session.onReconnected(() => void this.#remove())
  }

  /** What this owner makes now might be taken for what it made before. */
  has(owner: string): boolean {
    return this.#owners.has(owner)
  }

  add(owner: string, resources: readonly string[]): void {
    this.#owners.set(owner, resources)
    void this.#remove()
  }

  /** Never rejects: what could not be done now is done after the next reconnection. */
  async #remove(): Promise<void> {
    if (this.#busy) return
    this.#busy = true
    try {
      while (this.#owners.size > 0 && this.#session.connected) {
        const owners = [...this.#owners]
        await this.#line.settle(this.#withinMs)
        for (const [owner, resources] of owners) {
          await this.#line.removeOwner(resources, owner, this.#withinMs).catch((error: unknown) => {
            // We may not: then nobody can help it but the end of the session.
            if (!(error instanceof RefusedError)) throw error
          })
          if (this.#owners.get(owner) === resources) this.#owners.delete(owner)
        }
      }
    } catch {
      // No connection, or not for long enough. The next one brings us here again.
    } finally {
      this.#busy = false
    }
  }
}

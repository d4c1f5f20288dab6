import { RefusedError } from './errors.ts'
import type { ZookeeperSession } from './session.ts'
import type { ZookeeperSteps } from './steps.ts'

/**
 * Removes znodes whose creation or removal was never confirmed. They would last as long as this process does, so they are
 * looked for as soon as there is a connection, and again until the servers have answered. What was sent on an earlier
 * connection cannot be done after that (see `ZookeeperSteps.settle`). The end of the session removes them all.
 *
 * The shared `Cleanup` does not fit: it tries again after a pause and gives up with the ttl; here the next connection is the
 * time to try, and nothing ends with a ttl.
 */
export class ZnodeCleanup {
  readonly #session: ZookeeperSession
  readonly #steps: ZookeeperSteps
  readonly #withinMs: number
  readonly #owners = new Map<string, readonly string[]>()
  #busy = false

  constructor(session: ZookeeperSession, steps: ZookeeperSteps, withinMs: number) {
    this.#session = session
    this.#steps = steps
    this.#withinMs = withinMs
    session.onReconnected(() => void this.#remove())
  }

  /** What this owner makes now could be mistaken for what it made before. */
  has(owner: string): boolean {
    return this.#owners.has(owner)
  }

  add(owner: string, resources: readonly string[]): void {
    this.#owners.set(owner, resources)
    void this.#remove()
  }

  /** Never rejects. What could not be done now is done after the next reconnection. */
  async #remove(): Promise<void> {
    if (this.#busy) return
    this.#busy = true
    try {
      while (this.#owners.size > 0 && this.#session.connected) {
        const owners = [...this.#owners]
        await this.#steps.settle(this.#withinMs)
        for (const [owner, resources] of owners) {
          await this.#steps.removeOwner(resources, owner, this.#withinMs).catch((error: unknown) => {
            // We are not permitted to: then only the end of the session removes them.
            if (!(error instanceof RefusedError)) throw error
          })
          if (this.#owners.get(owner) === resources) this.#owners.delete(owner)
        }
      }
    } catch {
      // The connection was lost. The next one starts this again.
    } finally {
      this.#busy = false
    }
  }
}

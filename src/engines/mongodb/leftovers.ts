import { sleep, type Clock } from '../../clock.ts'
import { asError, isPermanent, SilentError } from './requests.ts'

/** Between two tries to remove something from a server that does not answer. */
const PAUSE_MS = 500

interface Leftover {
  readonly resources: readonly string[]
  readonly owners: readonly string[]
  readonly ttlMs: number
}

type Outcome = 'done' | 'failed' | 'hopeless'

/**
 * Removes what requests of unknown outcome may have left, in the background: tries again until a server has answered to
 * a try that began after the request was over, at most for as long as a lease of it would last. Then the ttl does the rest.
 */
export class Leftovers {
  readonly #clock: Clock
  readonly #remove: (resources: readonly string[], owners: readonly string[]) => Promise<unknown>
  readonly #closing = new AbortController()
  readonly #underWay = new Set<Promise<void>>()

  constructor(clock: Clock, remove: (resources: readonly string[], owners: readonly string[]) => Promise<unknown>) {
    this.#clock = clock
    this.#remove = remove
  }

  /**
   * Resolves after the first try, so that the next attempt does not meet its own leftovers; at once if the server was
   * silent, since it has been waited for long enough.
   */
  async remove(cause: unknown, left: Leftover): Promise<void> {
    const settled = cause instanceof SilentError ? cause.settled : undefined
    const first = this.#try(left)
    const rest = this.#persist(first, settled, left)
    this.#underWay.add(rest)
    void rest.finally(() => this.#underWay.delete(rest))
    if (settled === undefined) await first
  }

  /** Waits for the tries under way, and begins no more. */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.all(this.#underWay)
  }

  async #persist(first: Promise<Outcome>, settled: Promise<void> | undefined, left: Leftover): Promise<void> {
    const { signal } = this.#closing
    const endMs = this.#clock.monotonicMs() + left.ttlMs
    let isSettled = settled === undefined
    void settled?.then(() => (isSettled = true))
    let wasSettled = isSettled
    let outcome = await first
    while (outcome === 'failed' || (outcome === 'done' && !wasSettled)) {
      if (this.#clock.monotonicMs() > endMs) return
      await sleep(this.#clock, PAUSE_MS, signal)
      if (signal.aborted) return
      wasSettled = isSettled
      outcome = await this.#try(left)
    }
  }

  async #try({ resources, owners }: Leftover): Promise<Outcome> {
    try {
      await this.#remove(resources, owners)
      return 'done'
    } catch (error) {
      return isPermanent(asError(error)) ? 'hopeless' : 'failed'
    }
  }
}

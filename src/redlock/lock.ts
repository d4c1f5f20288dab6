import { inspect, type InspectOptions } from 'node:util'
import type { ExecutionResult, RedlockAttempts } from './errors.ts'
import type { Hold } from './hold.ts'
import type { Redlock } from './redlock.ts'

/** A lock that was acquired. `extend` returns another one for the same keys, and ends this one. */
export class Lock<Client extends object = object> {
  readonly redlock: Redlock<Client>
  readonly resources: string[]
  /** What the keys contain. */
  readonly value: string
  readonly attempts: RedlockAttempts<Client>
  /** Until when it may be relied on, in ms since 1970; 0 when it was released, extended, or could not be proved. */
  declare expiration: number
  #hold: Hold | undefined

  /** By hand, for a lock of another process: it can be extended and released, and has no token. */
  constructor(
    redlock: Redlock<Client>,
    resources: string[],
    value: string,
    attempts: RedlockAttempts<Client>,
    expiration: number,
  ) {
    this.redlock = redlock
    this.resources = resources
    this.value = value
    this.attempts = attempts
    let untilMs = expiration
    // A property of its own, as in redlock: `{ ...lock }` has it, too.
    Object.defineProperty(this, 'expiration', {
      enumerable: true,
      get: () => (this.#hold?.isProved === false ? 0 : untilMs),
      set: (value: number) => {
        untilMs = value
      },
    })
  }

  /** @internal */
  heldBy(hold: Hold | undefined): this {
    this.#hold = hold
    return this
  }

  /** @internal Undefined for a lock that was made by hand. */
  get hold(): Hold | undefined {
    return this.#hold
  }

  /** @internal Node shows an accessor as `[Getter/Setter]`. */
  [inspect.custom](_depth: number, options: InspectOptions): string {
    const { redlock, resources, value, attempts, expiration } = this
    return `Lock ${inspect({ redlock, resources, value, attempts, expiration }, options)}`
  }

  /** Every later lock on the same resource has a greater one. Hand it to the store that you write to: docs/fencing.md. */
  get fencingToken(): bigint {
    if (this.#hold !== undefined) return this.#hold.lease.token
    throw new TypeError('fencingToken: expected a lock that acquire has returned, got one that was made by hand')
  }

  release(): Promise<ExecutionResult<Client>> {
    return this.redlock.release(this)
  }

  extend(duration: number): Promise<Lock<Client>> {
    return this.redlock.extend(this, duration)
  }

  /** For `await using`. That it could not be released is an `error` event, because it must not replace the block's own error. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => undefined)
  }
}

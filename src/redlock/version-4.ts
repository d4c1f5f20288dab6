import { callbackify } from 'node:util'
import { ExecutionError, LockError } from './errors.ts'
import type { Lock } from './lock.ts'
import type { Redlock } from './redlock.ts'
import { durationOrThrow, settingsOf, type RedlockSettings } from './settings.ts'

export type Version4Callback<T> = (error: Error | null, value?: T) => void

/** What bluebird's `using` takes for a disposer: it looks for these methods, and converts any promise of them. */
export interface Version4Disposer {
  promise(): Promise<Version4Lock>
  resource(): Version4Lock
  tryDispose(): Promise<void>
}

/** A lock as redlock 4 has it: `extend` changes it and resolves with it. */
export class Version4Lock {
  readonly redlock: Redlock
  readonly resource: string[]
  /** How many attempts it took. */
  readonly attempts: number
  readonly attemptsRemaining: number
  #lock: Lock

  /** @internal */
  constructor(redlock: Redlock, lock: Lock, retryCount: number) {
    this.redlock = redlock
    this.resource = lock.resources
    this.attempts = lock.attempts.length
    this.attemptsRemaining = retryCount - this.attempts
    this.#lock = lock
  }

  get value(): string {
    return this.#lock.value
  }

  get expiration(): number {
    return this.#lock.expiration
  }

  get fencingToken(): bigint {
    return this.#lock.fencingToken
  }

  unlock(callback?: Version4Callback<void>): Promise<void> {
    const name = this.resource.join(',')
    // One attempt, as redlock 4 makes it.
    const released = this.redlock.release(this.#lock, { retryCount: 0 }).then(() => undefined)
    return settle(released, `Unable to fully release the lock on resource "${name}".`, callback)
  }

  extend(ttl: number, callback?: Version4Callback<Version4Lock>): Promise<Version4Lock> {
    const name = this.resource.join(',')
    const extended = withTtl(ttl, async () => {
      this.#lock = await this.redlock.extend(this.#lock, ttl)
      return this
    })
    const message = `Cannot extend lock on resource "${name}" because the lock has already expired.`
    return settle<Version4Lock>(extended, message, callback)
  }
}

export const version4 = {
  lock(
    redlock: Redlock,
    resource: string | string[],
    ttl: number,
    options: Partial<RedlockSettings> | undefined,
    callback: Version4Callback<Version4Lock> | undefined,
  ): Promise<Version4Lock> {
    const names = Array.isArray(resource) ? resource : [resource]
    const { retryCount } = settingsOf(options, redlock.settings)
    const acquired = withTtl(
      ttl,
      async () => new Version4Lock(redlock, await redlock.acquire(names, ttl, options), retryCount),
    )
    return settle(acquired, `Exceeded ${retryCount} attempts to lock the resource "${names.join(',')}".`, callback)
  },

  /** A failed unlock is told to `onError` and to nobody else. */
  async disposer(
    locking: Promise<Version4Lock>,
    onError: (error: Error) => unknown = () => undefined,
  ): Promise<Version4Disposer> {
    const lock = await locking
    return {
      promise: () => locking,
      resource: () => lock,
      tryDispose: async () => void (await lock.unlock().catch(onError)),
    }
  },
}

/** A duration that is refused is named as redlock 4 names it. */
async function withTtl<T>(ttl: number, work: () => Promise<T>): Promise<T> {
  durationOrThrow(ttl, 'ttl')
  return work()
}

/** Failures as redlock 4 has them, and its callbacks. */
function settle<T>(work: Promise<T>, message: string, callback: Version4Callback<T> | undefined): Promise<T> {
  const settled = work.catch((error: unknown) => {
    throw error instanceof ExecutionError ? new LockError(message, error.attempts.length, error) : error
  })
  return told(settled, callback)
}

/** Tells a callback as well, if there is one. What it throws is an uncaught exception, as in redlock 4. */
export function told<T>(work: Promise<T>, callback: Version4Callback<T> | undefined): Promise<T> {
  if (typeof callback === 'function') callbackify(() => work)((error, value) => callback(error, value))
  return work
}

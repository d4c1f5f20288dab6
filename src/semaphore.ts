import type { Calls } from './calls.ts'
import { HeldError, WaitTimeoutError } from './errors.ts'
import type { PermitLease } from './lease.ts'
import { LEASE_OPTIONS, NO_OPTIONS, waitTerms, type WaitOptions, type WaitTerms } from './options.ts'
import { PermitWaiter } from './permit-waiter.ts'
import { Permits } from './permits.ts'
import { optionsAndWork, section, type Work } from './section.ts'

/** As for a lease, except for `shared` and `reentrant`: a permit has one holder at a time, and each call gets one of its own. */
export type PermitOptions = Omit<WaitOptions, 'shared' | 'reentrant'>

const PERMIT_OPTIONS = [...LEASE_OPTIONS, 'wait', 'signal']

/**
 * At most `permits` holders at a time, in all processes that use the name with this number. Each holder has a permit of its own,
 * which is an ordinary exclusive lease on `name#0`, `name#1` and so on, with a token of its own.
 */
export class Semaphore {
  readonly name: string
  /** How many holders there may be at a time. */
  readonly permits: number
  readonly #permits: Permits
  readonly #calls: Calls

  /** @internal */
  constructor(name: string, permits: number, calls: Calls) {
    this.#permits = new Permits(name, permits, calls.settings)
    this.name = name
    this.permits = permits
    this.#calls = calls
  }

  /** Resolves with a permit, or with null when others have them all. Waits only if it is told to: `{ wait: '100ms' }`. */
  async tryAcquire(options: PermitOptions = NO_OPTIONS): Promise<PermitLease | null> {
    const terms = this.#terms(options, { ...this.#calls.settings.defaults, waitMs: 0, orNull: true })
    terms.signal?.throwIfAborted()
    try {
      return await this.#acquire(terms)
    } catch (error) {
      if (error instanceof HeldError || error instanceof WaitTimeoutError) return null
      throw error
    }
  }

  /** Resolves with a permit, and waits for one where others have them all. */
  async acquire(options: PermitOptions = NO_OPTIONS): Promise<PermitLease> {
    const terms = this.#terms(options)
    terms.signal?.throwIfAborted()
    return this.#acquire(terms)
  }

  /** Runs the work while it holds a permit: acquired before, renewed while the work runs, released after it. As `locks.using`. */
  using<T>(work: Work<T, PermitLease>): Promise<T>
  using<T>(options: PermitOptions, work: Work<T, PermitLease>): Promise<T>
  async using<T>(...rest: [Work<T, PermitLease>] | [PermitOptions, Work<T, PermitLease>]): Promise<T> {
    const [options, work] = optionsAndWork(rest, 'using', false)
    const lease = this.acquire(options)
    return section(lease, this.#calls.nesting.around(work, false))
  }

  #acquire(terms: WaitTerms): Promise<PermitLease> {
    this.#calls.assertOpen([this.name])
    const waiter = new PermitWaiter(this.#permits, terms, this.#calls)
    if (terms.waitMs > 0) this.#calls.pools.enter(waiter)
    else void waiter.tryAll()
    return waiter.lease
  }

  #terms(options: PermitOptions, defaults = this.#calls.settings.defaults): WaitTerms {
    if (typeof options === 'object' && options !== null && 'shared' in options) {
      throw new TypeError(
        'shared: expected no such option of a semaphore, because a permit has one holder; for many readers or one writer ' +
          'there is locks.using(name, { shared: true }, work)',
      )
    }
    return { ...waitTerms(options, defaults, this.#calls.engine, PERMIT_OPTIONS), reentrant: false }
  }
}

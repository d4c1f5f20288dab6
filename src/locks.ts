import { Desk } from './desk.ts'
import { elect, type ElectOptions } from './elect.ts'
import type { Engine, Finding, LeaseInfo } from './engine.ts'
import { HeldError } from './errors.ts'
import { Lease } from './lease.ts'
import { once, type OnceOptions, type OnceOutcome } from './once.ts'
import {
  LEASE_OPTIONS,
  locksSettings,
  NO_OPTIONS,
  resourceName,
  resourceNames,
  waitTerms,
  type LeaseOptions,
  type LocksOptions,
  type Settings,
  type WaitOptions,
} from './options.ts'

/** Makes locks on an engine. The locks own it from then on: closing them closes it. */
export function createLocks(engine: Engine, options: LocksOptions = {}): Locks {
  if (typeof engine?.acquire !== 'function') {
    throw new TypeError(
      `engine: expected an engine such as memory(), redis(client) or redlock(clients), got ${typeof engine}`,
    )
  }
  return new Locks(engine, locksSettings(options, engine))
}

type Work<T> = (lease: Lease) => T | Promise<T>

export class Locks implements AsyncDisposable {
  readonly engine: Engine
  readonly #settings: Settings
  readonly #desk: Desk
  #closing: Promise<void> | undefined

  /** @internal */
  constructor(engine: Engine, settings: Settings) {
    this.engine = engine
    this.#settings = settings
    this.#desk = new Desk(engine, settings)
  }

  /** The lease, or null when someone else has it. Never waits for anyone. */
  async tryAcquire(resource: string | readonly string[], options: LeaseOptions = NO_OPTIONS): Promise<Lease | null> {
    const terms = waitTerms(options, this.#settings.defaults, this.engine, LEASE_OPTIONS)
    const outcome = await this.#desk.tryAcquire(resourceNames(resource), terms)
    return outcome instanceof Lease ? outcome : null
  }

  /** The lease, waiting for it if need be. */
  async acquire(resource: string | readonly string[], options: WaitOptions = NO_OPTIONS): Promise<Lease> {
    const resources = resourceNames(resource)
    const terms = this.#terms(options)
    terms.signal?.throwIfAborted()
    if (terms.waitMs > 0) return this.#desk.acquire(resources, terms)
    const outcome = await this.#desk.tryAcquire(resources, terms)
    if (outcome instanceof Lease) return outcome
    throw new HeldError(resources, outcome.holder, outcome.remainingMs)
  }

  /**
   * Runs the work under a lease: acquired before, renewed while it runs, released after. The work's own error always
   * wins. If the lease was lost while it ran, the result is not handed out as if nothing had happened: it rejects with
   * `LeaseLostError`.
   */
  async using<T>(resource: string | readonly string[], work: Work<T>): Promise<T>
  async using<T>(resource: string | readonly string[], options: WaitOptions, work: Work<T>): Promise<T>
  async using<T>(resource: string | readonly string[], ...rest: [Work<T>] | [WaitOptions, Work<T>]): Promise<T> {
    const [options, work] = rest.length === 1 ? [NO_OPTIONS, rest[0]] : rest
    if (typeof work !== 'function') throw new TypeError(`work: expected a function, got ${typeof work}`)
    await using lease = await this.acquire(resource, options)
    const value = await work(lease)
    if (!lease.released) lease.assertHeld()
    return value
  }

  /** Leads whenever it can: campaigns, runs the work while leader, and campaigns again after a loss. */
  elect<T>(name: string, lead: Work<T>, options: ElectOptions = {}): Promise<T> {
    return elect(this, name, lead, options)
  }

  /** Runs a scheduled job on one machine only: skipped when held, kept for at least so long. */
  once<T>(name: string, options: OnceOptions, work: Work<T>): Promise<OnceOutcome<T>> {
    return once(this.#desk, this.#settings.defaults, name, options, work)
  }

  /** Who holds what: the lease of one resource, or every lease on the engine. */
  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    if (resource !== undefined) resourceName(resource)
    return this.engine.inspect(resource)
  }

  /** The doctor: what the engine finds about its servers. */
  check(): Promise<readonly Finding[]> {
    return this.engine.check(this.#settings.defaults.ttlMs)
  }

  /**
   * Ends all waits, releases all leases of these locks, closes the engine; your own clients stay open. Work under way is not
   * waited for: its signal aborts, and `using` rejects with `LeaseLostError`.
   */
  close(): Promise<void> {
    this.#closing ??= this.#desk.close()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #terms(options: WaitOptions): ReturnType<typeof waitTerms> {
    return waitTerms(options, this.#settings.defaults, this.engine)
  }
}

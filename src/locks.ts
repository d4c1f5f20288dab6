import { adoption, type AdoptOptions } from './adopt.ts'
import { Calls } from './calls.ts'
import { shown } from './duration.ts'
import { elect, type ElectOptions } from './elect.ts'
import type { Engine, Finding, LeaseInfo, NodeState } from './engine.ts'
import { HeldError, WaitTimeoutError } from './errors.ts'
import { Lease, type LeaseJson } from './lease.ts'
import { once, type OnceOptions, type OnceOutcome } from './once.ts'
import {
  locksSettings,
  NO_OPTIONS,
  resourceName,
  resourceNames,
  waitTerms,
  type LocksOptions,
  type Settings,
  type WaitOptions,
  type WaitTerms,
} from './options.ts'
import { optionsAndWork, section, type Work } from './section.ts'
import { Semaphore } from './semaphore.ts'
import { forceRelease, inspect, statusOf, type ForceReleaseOptions, type LockStatus } from './status.ts'

/**
 * Engines that have their locks. If one engine had two, the waiters of the second would not be woken by releases of the first,
 * because a process wakes its own waiters itself; and closing one of them would close the engine of both.
 */
const taken = new WeakSet<Engine>()

/** Makes the locks of an engine, which must have none yet. The locks own the engine from then on: closing them closes it. */
export function createLocks(engine: Engine, options: LocksOptions = {}): Locks {
  if (typeof engine?.acquire !== 'function' || engine instanceof Locks) {
    throw new TypeError(
      `engine: expected an engine such as memory(), redis(client) or redlock(clients), got ${kindOf(engine)}`,
    )
  }
  const settings = locksSettings(options, engine)
  if (taken.has(engine)) {
    throw new TypeError(
      `engine: expected one without locks, got a ${engine.name} engine that was given to createLocks before; ` +
        'share those locks (every call takes its own ttl and wait), or make a second engine (its clients may be the same)',
    )
  }
  taken.add(engine)
  return new Locks(engine, settings)
}

/** Locks on one engine, made by `createLocks`: acquires leases, runs work while one is held, and says who holds what. */
export class Locks implements AsyncDisposable {
  readonly engine: Engine
  readonly #settings: Settings
  readonly #withoutWait: WaitTerms
  readonly #calls: Calls
  #closing: Promise<void> | undefined

  /** @internal */
  constructor(engine: Engine, settings: Settings) {
    this.engine = engine
    this.#settings = settings
    this.#withoutWait = { ...settings.defaults, waitMs: 0 }
    this.#calls = new Calls(engine, settings)
  }

  /**
   * Resolves with the lease, or with null when someone else has it. Waits for a holder only if it is given a `wait`, and then
   * resolves with null when that is over. Rejects when the engine could not be asked.
   */
  async tryAcquire(resource: string | readonly string[], options: WaitOptions = NO_OPTIONS): Promise<Lease | null> {
    const terms = waitTerms(options, this.#withoutWait, this.engine)
    const resources = resourceNames(resource)
    const around = this.#joined(resources, terms)
    if (around !== undefined) return around
    if (terms.waitMs === 0) {
      const outcome = await this.#calls.tryAcquire(resources, terms)
      return outcome instanceof Lease ? outcome : null
    }
    try {
      return await this.#calls.acquire(resources, { ...terms, orNull: true })
    } catch (error) {
      if (error instanceof WaitTimeoutError) return null
      throw error
    }
  }

  /** Resolves with the lease, and waits for it where someone else has it. */
  acquire(resource: string | readonly string[], options: WaitOptions = NO_OPTIONS): Promise<Lease> {
    try {
      return this.#acquire(resourceNames(resource), this.#terms(options))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /**
   * Runs the work under a lease: acquired before, renewed while the work runs, released after it. If the work throws, the call
   * rejects with that error. If the lease was lost while the work ran, the call rejects with `LeaseLostError` and does not hand
   * out the result. The reason is `unnoticed` when only the release found that the lease was no longer ours. One false alarm is
   * possible: a driver that loses the answer to a release and sends the release again, as ioredis does, gets the answer that
   * the lease is gone.
   */
  using<T>(resource: string | readonly string[], work: Work<T>): Promise<T>
  using<T>(resource: string | readonly string[], options: WaitOptions, work: Work<T>): Promise<T>
  using<T>(resource: string | readonly string[], ...rest: [Work<T>] | [WaitOptions, Work<T>]): Promise<T> {
    try {
      const [options, work] = optionsAndWork(rest, 'using')
      const terms = this.#terms(options)
      const lease = this.#acquire(resourceNames(resource), terms)
      return section(lease, this.#calls.nesting.around(work, terms.reentrant))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Leader election: waits to become leader, runs the work while it leads, and waits again after a loss. */
  async elect<T>(name: string, work: Work<T>): Promise<T>
  async elect<T>(name: string, options: ElectOptions, work: Work<T>): Promise<T>
  async elect<T>(name: string, ...rest: [Work<T>] | [ElectOptions, Work<T>]): Promise<T> {
    const [options, work] = optionsAndWork(rest, 'elect')
    return elect(this, name, options, work)
  }

  /** Runs a scheduled job on one machine only. It is skipped while it runs elsewhere, and within `atLeast` of its last start. */
  once<T>(name: string, options: OnceOptions, work: Work<T>): Promise<OnceOutcome<T>> {
    return once(this.#calls, name, options, work)
  }

  /** A semaphore: at most `permits` holders at a time. Each holds a permit of its own, an exclusive lease on `name#0`, `name#1` … */
  semaphore(name: string, permits: number): Semaphore {
    return new Semaphore(name, permits, this.#calls)
  }

  /**
   * Takes over a lease that another process has handed off (`lease.handOff()`), or still holds (`lease.toJSON()`). From now on it
   * is this process's, which renews and releases it. In the same step on the servers it gets a new owner and a greater token, so
   * that nobody else can adopt it, and a holder that has not handed it off loses it as `stolen`. (On etcd both stay.) Rejects with
   * `LeaseLostError` if it is over, or was adopted already.
   */
  async adopt(lease: LeaseJson, options: AdoptOptions = {}): Promise<Lease> {
    const [ref, terms] = adoption(lease, options, this.#settings.defaults, this.engine)
    return this.#calls.adopt(ref, terms)
  }

  /** Who holds what: the lease of one resource, or every lease on the engine. Rejects when the engine cannot find out. */
  inspect(resource?: string): AsyncIterable<LeaseInfo> {
    if (resource !== undefined) resourceName(resource)
    return inspect(this.engine, resource)
  }

  /** Who has the resource, and who waits for it; null where it is free. Rejects when the engine cannot find out. */
  status(resource: string): Promise<LockStatus | null> {
    return statusOf(this.engine, resource)
  }

  /**
   * Ends a lease of any process, for a person who knows that it must end: only if it still has this token, never that of a
   * later holder. Its holder learns of it at its next renewal, and until then two may work at the same time. Resolves with whether
   * it ended something. Rejects with `EngineError` if that could not be found out.
   */
  forceRelease(resource: string, options: ForceReleaseOptions): Promise<boolean> {
    return forceRelease(this.engine, resource, options)
  }

  /** The doctor: what the engine finds about its servers. Where somebody observes, they are probed as well. */
  async check(): Promise<readonly Finding[]> {
    const findings = await this.engine.check(this.#settings.defaults.ttlMs)
    if (this.#settings.tell !== undefined) await this.probe()
    return findings
  }

  /**
   * How each server answers now: round trip and clock as far as they can be measured, which of them sits out, or why it does not
   * answer. It takes a few round trips, and tells the observer what it has found.
   */
  async probe(): Promise<readonly NodeState[]> {
    const servers = (await this.engine.probe?.()) ?? []
    this.#settings.tell?.({ type: 'probed', servers })
    return servers
  }

  /**
   * Ends all waits, releases all leases of these locks and closes the engine. Your own clients stay open. Work under way is
   * not waited for: its signal aborts, and `using` rejects with `LeaseLostError`.
   */
  close(): Promise<void> {
    this.#closing ??= this.#calls.close()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #joined(resources: readonly string[], { signal, reentrant, shared }: WaitTerms): Lease | undefined {
    signal?.throwIfAborted()
    return reentrant ? this.#calls.nesting.join({ resources, shared }) : undefined
  }

  #acquire(resources: readonly string[], terms: WaitTerms): Promise<Lease> {
    const around = this.#joined(resources, terms)
    if (around !== undefined) return Promise.resolve(around)
    return terms.waitMs > 0 ? this.#calls.acquire(resources, terms) : this.#acquireNow(resources, terms)
  }

  async #acquireNow(resources: readonly string[], terms: WaitTerms): Promise<Lease> {
    const { nesting, holdings } = this.#calls
    const use = nesting.current()
    const outcome = await this.#calls.tryAcquire(resources, terms)
    if (outcome instanceof Lease) return outcome
    const { holder, remainingMs, votes, offered, writerWaits } = outcome
    const { shared } = terms
    const here = nesting.heldHere(use, { resources, shared }, holdings.inTheWay(resources, shared))
    const details = { here, votes: votes?.(), offered, writerWaits }
    throw new HeldError(resources, here?.owner ?? holder, remainingMs, details)
  }

  #terms(options: WaitOptions): WaitTerms {
    return waitTerms(options, this.#settings.defaults, this.engine)
  }
}

/** What was given instead of an engine: most often the client that an engine is made of. */
function kindOf(value: unknown): string {
  const can = (method: string): boolean =>
    typeof value === 'object' && value !== null && typeof Reflect.get(value, method) === 'function'
  if (Array.isArray(value)) return 'an array; wrap Redis clients: createLocks(redlock([a, b, c]))'
  if (can('sendCommand')) return 'a Redis client; wrap it: createLocks(redis(client))'
  if (typeof value === 'function') return 'a function; if it makes an engine, call it, as in createLocks(redis(client))'
  if (value instanceof Locks) return 'locks, which have an engine already; use them as they are'
  if (can('query')) return 'a database client; wrap it: createLocks(postgres(client)) or createLocks(mariadb(client))'
  return shown(value)
}

import { EventEmitter } from 'node:events'
import { shown } from '../duration.ts'
import type { LeaseRef } from '../engine.ts'
import { EngineError, LeaseLostError, type LossReason } from '../errors.ts'
import { property } from '../engines/shared/shape.ts'
import { sleep } from '../clock.ts'
import { acquireLease, delayMs } from './acquiring.ts'
import {
  EXPIRED,
  ExecutionError,
  LockError,
  NO_QUORUM,
  ResourceLockedError,
  type ExecutionResult,
  type ExecutionStats,
} from './errors.ts'
import { Hold } from './hold.ts'
import { Lock } from './lock.ts'
import { durationOrThrow, settingsOf, wholeOrThrow } from './settings.ts'
import type { RedlockInstanceSettings, RedlockSettings } from './settings.ts'
import { sharedLocks, type SharedLocks } from './shared-locks.ts'
import { told, Version4Lock, version4, type Version4Callback, type Version4Disposer } from './version-4.ts'

/** The signal of `using`, with why it aborted. */
export type RedlockAbortSignal = AbortSignal & { error?: Error }

type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>

/** Locks with the API of npm's redlock, on one Redis or on a quorum of independent masters: docs/redlock-drop-in.md. */
export class Redlock<Client extends object = object> extends EventEmitter {
  static readonly Lock = Version4Lock
  static readonly LockError = LockError
  readonly clients: Set<Client>
  readonly settings: RedlockSettings
  readonly #shared: SharedLocks<Client>

  constructor(clients: Iterable<Client>, settings: Partial<RedlockInstanceSettings> = {}, scripts: object = {}) {
    super()
    // An `error` event without a listener would end the process, and a node that fails is no reason for that.
    this.on('error', () => undefined)
    this.clients = distinctOrThrow([...iterableOrThrow(clients)])
    if (this.clients.size === 0) throw new Error('Redlock must be instantiated with at least one redis client.')
    assertNoScripts(settings)
    assertNoScripts(scripts)
    this.settings = settingsOf(settings)
    const { driftFactor } = this.settings
    const { prefix, maxTtl } = settings
    this.#shared = sharedLocks([...this.clients], { driftFactor, prefix, maxTtl })
  }

  /** Closes the clients, by their own `quit()`. Releases nothing: the locks run out. */
  quit(callback?: Version4Callback<void>): Promise<void> {
    return told(this.#quit(), callback)
  }

  async #quit(): Promise<void> {
    this.#shared.forget()
    await Promise.all([...this.clients].map((client) => (client as { quit(): unknown }).quit()))
  }

  async acquire(resources: string[], duration: number, settings?: Partial<RedlockSettings>): Promise<Lock<Client>> {
    return this.#acquire(resources, duration, settingsOf(settings, this.settings))
  }

  /** Rejects with `ExecutionError` if no quorum of the nodes had it, or could be asked. */
  release(lock: Lock<Client>, settings?: Partial<RedlockSettings>): Promise<ExecutionResult<Client>>
  /** As redlock 4 has it: `unlock`. */
  release(lock: Version4Lock, callback?: Version4Callback<void>): Promise<void>
  release(
    lock: Lock<Client> | Version4Lock,
    more?: Partial<RedlockSettings> | Version4Callback<void>,
  ): Promise<ExecutionResult<Client> | void> {
    if (lock instanceof Version4Lock) return lock.unlock(more as Version4Callback<void> | undefined)
    return this.#release(lock, more as Partial<RedlockSettings> | undefined)
  }

  async #release(lock: Lock<Client>, settings?: Partial<RedlockSettings>): Promise<ExecutionResult<Client>> {
    const { hold, expiration } = lockOrThrow(lock)
    const isFirst = hold?.lease.released === false
    const why = lossOf(hold, isFirst)
    lock.expiration = 0
    hold?.end()
    const ref = this.#ref(lock, RELEASE_TTL_MS)
    const { clock, engine } = this.#shared
    const isOver = (): boolean => clock.wallMs() >= expiration
    return this.#execute('release', lock, settings, isOver, async (tries) => {
      // The lease itself is released once; what failed is tried again on the nodes.
      const ours = isFirst && tries === 1 ? await hold.lease.release() : (await engine.release(ref)).ours
      return ours || new LeaseLostError(ref.resources, why)
    })
  }

  /** Resolves with another lock for the same keys. */
  extend(existing: Lock<Client>, duration: number, settings?: Partial<RedlockSettings>): Promise<Lock<Client>>
  /** As redlock 4 has it: changes the lock and resolves with it. */
  extend(existing: Version4Lock, ttl: number, callback?: Version4Callback<Version4Lock>): Promise<Version4Lock>
  extend(
    existing: Lock<Client> | Version4Lock,
    duration: number,
    more?: Partial<RedlockSettings> | Version4Callback<Version4Lock>,
  ): Promise<Lock<Client> | Version4Lock> {
    if (existing instanceof Version4Lock)
      return existing.extend(duration, more as Version4Callback<Version4Lock> | undefined)
    return this.#extend(existing, duration, more as Partial<RedlockSettings> | undefined)
  }

  async #extend(existing: Lock<Client>, duration: number, settings?: Partial<RedlockSettings>): Promise<Lock<Client>> {
    durationOrThrow(duration)
    const { clock, engine } = this.#shared
    const { hold, resources, value } = lockOrThrow(existing)
    if (existing.expiration < clock.wallMs()) throw new ExecutionError(EXPIRED, [])
    const startMs = clock.wallMs()
    const { attempts } = await this.#execute('extend', existing, settings, isNever, async () => {
      if (hold !== undefined) return hold.extend(duration).then(() => true, lossOrThrow)
      const [answer] = await engine.extend([this.#ref(existing, duration)])
      if (answer!.kind === 'unknown') throw new EngineError(answer!.cause.message, resources, { cause: answer!.cause })
      return answer!.kind === 'held' || new LeaseLostError(resources, 'stolen')
    })
    existing.expiration = 0
    const read = settingsOf(settings, this.settings)
    const expiration =
      hold === undefined ? startMs + duration - this.#driftMs(duration, read) : this.#expiration(hold, duration, read)
    return new Lock(this, resources, value, attempts, expiration).heldBy(hold)
  }

  /**
   * Runs the routine under a lock that is extended until it is done. The signal aborts when that fails, with the reason in
   * `signal.error`; the call then rejects with it, also if the routine succeeds.
   */
  using<T>(resources: string[], duration: number, settings: Partial<RedlockSettings>, routine?: Routine<T>): Promise<T>
  using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>
  async using<T>(
    resources: string[],
    duration: number,
    settingsOrRoutine: Partial<RedlockSettings> | Routine<T>,
    optionalRoutine?: Routine<T>,
  ): Promise<T> {
    wholeOrThrow(duration)
    const given = typeof settingsOrRoutine === 'function' ? undefined : settingsOrRoutine
    const settings = settingsOf(given, this.settings)
    const routine = optionalRoutine ?? settingsOrRoutine
    if (typeof routine !== 'function') throw new Error('INVARIANT: routine is not a function.')
    if (settings.automaticExtensionThreshold > duration - 100) {
      throw new Error(
        'A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.',
      )
    }
    const controller = new AbortController()
    const signal: RedlockAbortSignal = controller.signal
    const abort = (cause: unknown): void => {
      if (signal.aborted) return
      signal.error = new ExecutionError(NO_QUORUM, [], cause)
      controller.abort(signal.error)
    }
    const lock = await this.#acquire(resources, duration, settings, abort)
    const { lease } = lock.hold!
    const lost = lease.signal
    const onLoss = (): void => {
      if (!lease.released) abort(lost.reason)
    }
    lost.addEventListener('abort', onLoss)
    if (lost.aborted) onLoss()
    const [outcome] = await Promise.allSettled([run(routine, signal)])
    lost.removeEventListener('abort', onLoss)
    const [released] = await Promise.allSettled([this.release(lock, settings)])
    if (outcome.status === 'rejected') throw outcome.reason
    if (signal.error !== undefined) throw signal.error
    if (released.status === 'rejected') throw released.reason
    return outcome.value
  }

  // What of the API of redlock 4 can be served.

  get servers(): Client[] {
    return [...this.clients]
  }

  get driftFactor(): number {
    return this.settings.driftFactor
  }

  get retryCount(): number {
    return this.settings.retryCount
  }

  get retryDelay(): number {
    return this.settings.retryDelay
  }

  get retryJitter(): number {
    return this.settings.retryJitter
  }

  lock(resource: string | string[], ttl: number, callback?: Version4Callback<Version4Lock>): Promise<Version4Lock> {
    return version4.lock(this as unknown as Redlock, resource, ttl, undefined, callback)
  }

  lockWithOptions(
    resource: string | string[],
    ttl: number,
    options: Partial<RedlockSettings>,
    callback?: Version4Callback<Version4Lock>,
  ): Promise<Version4Lock> {
    return version4.lock(this as unknown as Redlock, resource, ttl, options, callback)
  }

  acquireWithOptions(
    resource: string | string[],
    ttl: number,
    options: Partial<RedlockSettings>,
    callback?: Version4Callback<Version4Lock>,
  ): Promise<Version4Lock> {
    return this.lockWithOptions(resource, ttl, options, callback)
  }

  unlock(lock: Version4Lock, callback?: Version4Callback<void>): Promise<void> {
    return lock.unlock(callback)
  }

  /** For bluebird's `Promise.using`, which unlocks it. A failed unlock is told to `onError` only. */
  disposer(resource: string | string[], ttl: number, onError?: (error: Error) => unknown): Promise<Version4Disposer> {
    return version4.disposer(this.lock(resource, ttl), onError)
  }

  async #acquire(
    resources: string[],
    duration: number,
    settings: RedlockSettings,
    abort?: (cause: unknown) => void,
  ): Promise<Lock<Client>> {
    durationOrThrow(duration)
    if (!Array.isArray(resources)) {
      throw new TypeError(
        `resources: expected an array of names, got ${shown(resources)}; write acquire([name], duration), or, for a lock as ` +
          'redlock 4 has it, lock(name, ttl)',
      )
    }
    const { clock, engine, maxTtlMs } = this.#shared
    const renew = abort !== undefined
    const onAgainst = (error: Error): void => this.#tell(error)
    const wanted = { resources, duration, renew, settings, onAgainst }
    const { lease, attempts } = await acquireLease(this.#shared, wanted)
    const lapsed = (error: Error): void => {
      this.#tell(error)
      abort?.(error)
    }
    const everyMs = duration - settings.automaticExtensionThreshold
    const often = renew && everyMs < duration / 3 ? { everyMs } : {}
    const driftMs = (ttlMs: number): number => engine.limits.driftMs(ttlMs)
    const hold = new Hold(lease, duration, { clock, maxTtlMs, driftMs, renew, ...often, lapsed })
    const expiration = this.#expiration(hold, duration, settings)
    return new Lock(this, resources, lease.owner, attempts, expiration).heldBy(hold)
  }

  /** Tries as often as the settings say, unless the nodes have said no, or there is nothing left to try for. */
  async #execute(
    operation: 'extend' | 'release',
    { value, resources }: Lock<Client>,
    given: Partial<RedlockSettings> | undefined,
    isOver: () => boolean,
    attempt: (tries: number) => Promise<true | LeaseLostError>,
  ): Promise<ExecutionResult<Client>> {
    const settings = settingsOf(given, this.settings)
    const mostTries = settings.retryCount === -1 ? Infinity : settings.retryCount + 1
    const attempts: Promise<ExecutionStats<Client>>[] = []
    const about = { resources: resources.length, onAgainst: (error: Error) => this.#tell(error) }
    for (let tries = 1; ; tries++) {
      const { stats, outcome } = await this.#shared.withBallot(operation, value, about, () => attempt(tries))
      attempts.push(stats)
      if (outcome.status === 'fulfilled' && outcome.value === true) return { attempts }
      if (outcome.status === 'fulfilled') throw new ExecutionError(NO_QUORUM, attempts, outcome.value)
      if (!(outcome.reason instanceof EngineError)) throw outcome.reason
      if (tries >= mostTries || isOver()) throw new ExecutionError(NO_QUORUM, attempts, outcome.reason)
      await sleep(this.#shared.clock, delayMs(settings, this.#shared.random))
    }
  }

  #tell(error: Error): void {
    this.emit('error', error)
    if (!(error instanceof ResourceLockedError)) this.emit('clientError', error)
  }

  #ref({ resources, value, hold }: Lock<Client>, ttlMs: number): LeaseRef {
    return { resources: [...new Set(resources)].sort(), owner: value, token: hold?.lease.token ?? 0n, ttlMs }
  }

  /** By the lease, or earlier where a call has a larger drift of its own. */
  #expiration({ lease }: Hold, duration: number, settings: RedlockSettings): number {
    const { clock, engine } = this.#shared
    const moreMs = Math.max(0, this.#driftMs(duration, settings) - engine.limits.driftMs(duration))
    return Math.floor(clock.wallMs() + lease.remaining() - moreMs)
  }

  #driftMs(duration: number, { driftFactor }: RedlockSettings): number {
    return Math.round(driftFactor * duration) + 2
  }
}

/** The types that programs with redlock 4 name: `Redlock.Lock` is the type of what `lock()` resolves with. */
export declare namespace Redlock {
  export type Lock = Version4Lock
  export type LockError = InstanceType<typeof Redlock.LockError>
  export type Options = Partial<RedlockInstanceSettings>
  export type Callback<T> = Version4Callback<T>
}

/** Of a lock of another process the duration is not known. It decides only how long a node may take to answer. */
const RELEASE_TTL_MS = 10_000

async function run<T>(routine: Routine<T>, signal: RedlockAbortSignal): Promise<T> {
  return routine(signal)
}

function isNever(): boolean {
  return false
}

function lossOrThrow(error: unknown): LeaseLostError {
  if (error instanceof LeaseLostError) return error
  throw error
}

/** Why a release finds that the lock is not ours. */
function lossOf(hold: Hold | undefined, isFirst: boolean): LossReason {
  if (hold === undefined) return 'stolen'
  return isFirst && hold.lease.held ? 'unnoticed' : hold.lease.why()
}

/** redlock puts them into a set, where one client twice is one vote, and says nothing. */
function distinctOrThrow<Client>(clients: readonly Client[]): Set<Client> {
  const twice = clients.findIndex((client, index) => clients.indexOf(client) < index)
  if (twice === -1) return new Set(clients)
  throw new TypeError(
    `clients[${twice}]: expected a client of its own, got the same object as clients[${clients.indexOf(clients[twice]!)}]; it would be ` +
      'one vote, so write each client once',
  )
}

function iterableOrThrow<Client>(clients: Iterable<Client>): Iterable<Client> {
  if (typeof clients === 'object' && clients !== null && Symbol.iterator in clients) return clients
  throw new TypeError(`clients: expected an array of Redis clients, got ${shown(clients)}; write new Redlock([client])`)
}

function lockOrThrow<Client extends object>(lock: Lock<Client>): Lock<Client> {
  if (lock instanceof Lock) return lock
  throw new TypeError(
    `lock: expected one that acquire has returned, got ${shown(lock)}; hand over what it has resolved with: ` +
      'const lock = await redlock.acquire([name], duration)',
  )
}

const SCRIPTS = ['acquireScript', 'extendScript', 'releaseScript', 'lockScript', 'unlockScript']

function assertNoScripts(given: object): void {
  const name = SCRIPTS.find((name) => property(given, name) !== undefined)
  if (name === undefined) return
  throw new TypeError(
    `${name}: expected none, because the scripts of ringfence also count tokens and keep the line; do what it did in your own ` +
      'code after acquire, or stay with redlock for these locks',
  )
}

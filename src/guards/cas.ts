import { sleep } from '../clock.ts'
import { shown } from '../duration.ts'
import { hasMethods } from '../engines/shared/shape.ts'
import { GuardError } from '../errors.ts'
import {
  fencedOrThrow,
  isAt,
  passes,
  GuardContext,
  StoreGuard,
  type Fence,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'

/** Any store that can write a value on the condition that it is still the version that was read. */
export interface CasStore<Value> {
  /** Returns what is there now, or undefined. It must be the newest version, not a copy that lags behind. */
  read(key: string): Promise<Versioned<Value> | undefined>
  /**
   * Writes value and fence together if `version` is still the current one, or, where it is undefined, if there is nothing.
   * Returns false if it is not. Rejects when that could not be found out.
   */
  write(key: string, next: FencedValue<Value>, version: string | undefined): Promise<boolean>
}

/** A value as it is in the store, with its fence. */
export interface FencedValue<Value> {
  /** Undefined when a holder has entered and nothing has been written yet. */
  readonly value: Value | undefined
  /** Keep it unchanged beside the value: a text without line breaks. Undefined on values that were written without a guard. */
  readonly fence: string | undefined
}

/** A fenced value and the version that a conditional write names. */
export interface Versioned<Value> extends FencedValue<Value> {
  /** Different after every write: an ETag, a revision. */
  readonly version: string
}

/** Options of `casGuard`. */
export interface CasGuardOptions extends GuardOptions {
  /** Returns the key of the value of a resource. Default: the resource itself. */
  key?: (resource: string) => string
}

/**
 * The fence is kept with the value, and both are written on the condition that neither has changed. Resources are independent
 * of one another: a lease on several of them raises one fence after the other.
 */
export interface CasGuard<Value> extends Guard {
  /**
   * Replaces the value of one of the lease's resources by what `transform` returns for it, and returns that. `transform` is
   * called again if another process has written in between, so it must have no side effects. Where the transport repeats a
   * request whose answer was lost, the value is still written only once.
   */
  write(
    lease: Fenced,
    resource: string,
    transform: (value: Value | undefined) => Value | Promise<Value>,
  ): Promise<Value>
}

/** A guard for any store with compare-and-set; `objectStore` makes such a store of object storage. */
export function casGuard<Value>(store: CasStore<Value>, options: CasGuardOptions = {}): CasGuard<Value> {
  return new CasStoreGuard(store, options)
}

/** Each failure means that another write has succeeded: this many in a row mean that the store is written without pause. */
const MOST_TRIES = 100
const LONGEST_PAUSE_MS = 20

class CasStoreGuard<Value> extends StoreGuard implements CasGuard<Value> {
  readonly #store: CasStore<Value>
  readonly #context: GuardContext
  readonly #keyOf: (resource: string) => string

  constructor(store: CasStore<Value>, options: CasGuardOptions) {
    const context = new GuardContext('cas', options, ['key'])
    super(context)
    this.#context = context
    if (!hasMethods(store, 'read', 'write')) {
      throw new TypeError(`store: expected an object with read and write, got ${shown(store)}`)
    }
    const { key = (resource: string) => resource } = options
    if (typeof key !== 'function') throw new TypeError(`key: expected a function, got ${shown(key)}`)
    this.#store = store
    this.#keyOf = key
  }

  async write(
    lease: Fenced,
    resource: string,
    transform: (value: Value | undefined) => Value | Promise<Value>,
  ): Promise<Value> {
    const fenced = fencedOrThrow(lease)
    if (!fenced.resources.includes(resource)) {
      throw new RangeError(`resource: expected one of the lease, got ${shown(resource)}`)
    }
    if (typeof transform !== 'function') throw new TypeError(`transform: expected a function, got ${shown(transform)}`)
    return this.#replace(fenced, resource, undefined, transform)
  }

  async raise(lease: Fenced, from?: string): Promise<void> {
    for (const resource of lease.resources) {
      await this.#replace(lease, resource, from, (value, seen) => (isAt(lease, seen) ? UNCHANGED : value))
    }
  }

  async #replace<Next extends Value | undefined>(
    lease: Fenced,
    resource: string,
    from: string | undefined,
    next: (value: Value | undefined, seen: Fence | undefined) => Next | typeof UNCHANGED | Promise<Next>,
  ): Promise<Next> {
    const { resources } = lease
    const key = this.#keyOf(resource)
    let last: { readonly id: string; readonly value: Next } | undefined
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const stored = await this.#context.answered(resources, this.#store.read(key))
      const { seen, writes } = stored?.fence === undefined ? UNFENCED : parsed(stored.fence, resource)
      // The store refused it because it was already done: something below us has sent the request twice.
      if (last !== undefined && writes.includes(last.id)) return last.value
      if (!passes(lease, seen, from)) throw this.#context.refusal(lease, resource, seen!)
      const value = await next(stored?.value, seen)
      if (value === UNCHANGED) return undefined as Next
      last = { id: this.#context.random.id().slice(0, WRITE_ID_LENGTH), value }
      const fence = fenceText(lease, [last.id, ...writes])
      if (await this.#context.answered(resources, this.#store.write(key, { value, fence }, stored?.version)))
        return value
      await sleep(this.#context.clock, LONGEST_PAUSE_MS * this.#context.random.fraction())
    }
    throw new GuardError(`'${resource}' was written by others ${MOST_TRIES} times in a row; try again`, resources)
  }
}

const UNCHANGED = Symbol('unchanged')

interface StoredFence {
  readonly seen: Fence | undefined
  /** The ids of the writes that led to this value, the newest first. */
  readonly writes: readonly string[]
}

const UNFENCED: StoredFence = { seen: undefined, writes: [] }

const WRITE_ID_LENGTH = 16
/** Other processes may write between our write and our next read. This many writes of theirs do not hide ours. */
const MOST_WRITES = 8

function fenceText({ token, engine }: Fenced, writes: readonly string[]): string {
  // Where the fence becomes a header, it must be plain ASCII without spaces at its ends.
  return `${token} ${encodeURIComponent(engine)} ${writes.slice(0, MOST_WRITES).join('.')}`
}

/** Other text in the place of a fence must not let everybody pass. */
function parsed(text: string, resource: string): StoredFence {
  const [, token, engine, writes] = /^(\d+) (\S+)(?: ([\w.]+))?$/.exec(text) ?? []
  if (token !== undefined && engine !== undefined) {
    const seen = { token: BigInt(token), engine: decodeURIComponent(engine) }
    return { seen, writes: writes?.split('.') ?? [] }
  }
  throw new GuardError(`what the store has for '${resource}' is not a fence: ${shown(text)}`, [resource], {
    transient: false,
  })
}

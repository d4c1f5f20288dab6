import { sleep } from '../clock.ts'
import { shown } from '../duration.ts'
import { GuardError } from '../errors.ts'
import { systemRandom } from '../random.ts'
import {
  fencedOrThrow,
  givingWay,
  passes,
  Post,
  type Fence,
  type Fenced,
  type Guard,
  type GuardOptions,
} from './guard.ts'
import { hasMethods } from './rows.ts'

/** Any store that can write a value on the condition that it is still the version that was read. */
export interface CasStore<Value> {
  /** What is there now, or undefined. It must be the newest, not a copy that lags behind. */
  read(key: string): Promise<Versioned<Value> | undefined>
  /**
   * Writes value and fence together if `version` is still the current one, or, where it is undefined, if there is nothing.
   * False if it is not so. Rejects when that could not be found out.
   */
  write(key: string, next: FencedValue<Value>, version: string | undefined): Promise<boolean>
}

export interface FencedValue<Value> {
  /** Undefined when somebody has entered, and nothing was written yet. */
  readonly value: Value | undefined
  /** To be kept beside the value, as it is: a text without line breaks. Undefined on what was written without a guard. */
  readonly fence: string | undefined
}

export interface Versioned<Value> extends FencedValue<Value> {
  /** Different after every write: an ETag, a revision. */
  readonly version: string
}

export interface CasGuardOptions extends GuardOptions {
  /** Under which key the value of a resource is. Default: the resource itself. */
  key?: (resource: string) => string
}

/**
 * The fence is kept with the value, and both are written on the condition that neither has changed. Every resource is by
 * itself: a lease on several of them raises one after the other.
 */
export interface CasGuard<Value> extends Guard {
  /**
   * Replaces the value of one of the lease's resources by what `transform` makes of it, and gives that. It is called again
   * if somebody else has written in between, so it must do nothing else.
   */
  write(
    lease: Fenced,
    resource: string,
    transform: (value: Value | undefined) => Value | Promise<Value>,
  ): Promise<Value>
}

/** A guard for any store with compare-and-set; `objectStore` makes one of object storage. */
export function casGuard<Value>(store: CasStore<Value>, options: CasGuardOptions = {}): CasGuard<Value> {
  return new CasStoreGuard(store, options)
}

/** Each time somebody else has succeeded, so this many in a row are a store that is written without pause. */
const MOST_TRIES = 100
const LONGEST_PAUSE_MS = 20

class CasStoreGuard<Value> implements CasGuard<Value> {
  readonly #store: CasStore<Value>
  readonly #post: Post
  readonly #keyOf: (resource: string) => string

  constructor(store: CasStore<Value>, options: CasGuardOptions) {
    this.#post = new Post('cas', options, ['key'])
    if (!hasMethods(store, 'read', 'write')) {
      throw new TypeError(`store: expected an object with read and write, got ${shown(store)}`)
    }
    const { key = (resource: string) => resource } = options
    if (typeof key !== 'function') throw new TypeError(`key: expected a function, got ${shown(key)}`)
    this.#store = store
    this.#keyOf = key
  }

  get rejections(): number {
    return this.#post.rejections
  }

  async enter(lease: Fenced): Promise<void> {
    const fenced = fencedOrThrow(lease)
    for (const resource of fenced.resources) await this.#raise(fenced, resource)
  }

  async adopt(lease: Fenced, from: string): Promise<void> {
    const fenced = fencedOrThrow(lease)
    for (const resource of fenced.resources) await this.#raise(fenced, resource, givingWay(from, fenced))
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

  async #raise(lease: Fenced, resource: string, from?: string): Promise<void> {
    await this.#replace(lease, resource, from, (value, seen) => {
      const isRaised = seen?.engine === lease.engine && seen.token === lease.token
      return isRaised ? UNCHANGED : value
    })
  }

  async #replace<Next extends Value | undefined>(
    lease: Fenced,
    resource: string,
    from: string | undefined,
    next: (value: Value | undefined, seen: Fence | undefined) => Next | typeof UNCHANGED | Promise<Next>,
  ): Promise<Next> {
    const { resources } = lease
    const key = this.#keyOf(resource)
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const stored = await this.#post.answered(resources, this.#store.read(key))
      const seen = stored?.fence === undefined ? undefined : parsed(stored.fence, resource)
      if (!passes(lease, seen, from)) throw this.#post.refusal(lease, resource, seen!)
      const value = await next(stored?.value, seen)
      if (value === UNCHANGED) return undefined as Next
      const writing = this.#store.write(key, { value, fence: fenceText(lease) }, stored?.version)
      if (await this.#post.answered(resources, writing)) return value
      await sleep(this.#post.clock, LONGEST_PAUSE_MS * systemRandom.fraction())
    }
    throw new GuardError(`'${resource}' was written by others ${MOST_TRIES} times in a row`, resources)
  }
}

const UNCHANGED = Symbol('unchanged')

function fenceText({ token, engine }: Fenced): string {
  // Where the fence becomes a header, it must be plain ASCII without spaces at its ends.
  return `${token} ${encodeURIComponent(engine)}`
}

/** Something else in the place of a fence must not let everybody pass. */
function parsed(text: string, resource: string): Fence {
  const [, token, engine] = /^(\d+) (\S+)$/.exec(text) ?? []
  if (token !== undefined && engine !== undefined) return { token: BigInt(token), engine: decodeURIComponent(engine) }
  throw new GuardError(`what the store has for '${resource}' is not a fence: ${shown(text)}`, [resource], {
    transient: false,
  })
}

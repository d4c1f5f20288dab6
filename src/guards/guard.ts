import { optionsOrThrow } from '../arguments.ts'
import { systemClock, type Clock } from '../clock.ts'
import { Deadlines, type Deadline } from '../deadlines.ts'
import { durationMs, shown, type Duration } from '../duration.ts'
import { ForeignTokenError, GuardError, StaleTokenError } from '../errors.ts'
import { tell } from '../events.ts'
import { resourceNames } from '../options.ts'

/** What a guard looks at. A lease is one, and so is what a header or a message has carried over from the holder. */
export interface Fenced {
  readonly resources: readonly string[]
  readonly token: bigint
  /** The identity of the engine that granted it. */
  readonly engine: string
}

/** What a store remembers of a resource: the highest token it has seen, and whose. */
export interface Fence {
  readonly token: bigint
  readonly engine: string
}

/**
 * Keeps stale holders from a store. A token equal to the highest seen passes, since one holder writes many times; a lower
 * one rejects with `StaleTokenError`; one of another engine with `ForeignTokenError`; the first of a resource passes.
 */
export interface Guard {
  /**
   * Raises the fence of every resource of the lease: from now on older holders are refused. Call it before the first read
   * that a write will be based on. Otherwise an older holder's late write may land between that read and that write,
   * pass because nothing newer was seen yet, and be overwritten.
   */
  enter(lease: Fenced): Promise<void>
  /**
   * Makes the lease's engine the one whose tokens count from now on, where the store has tokens of the engine `from`.
   * Nothing says how the numbers of the two compare, so nobody may still hold a lease of the old one.
   */
  adopt(lease: Fenced, from: string): Promise<void>
  /** How many calls were refused for their token, stale or foreign, by this object. */
  readonly rejections: number
}

/** A call was refused for its token. */
export interface GuardEvent {
  readonly type: 'rejected'
  readonly reason: 'stale' | 'foreign'
  /** Which kind of guard: 'postgres', 'redis', … */
  readonly guard: string
  readonly resource: string
  readonly token: bigint
  readonly engine: string
  /** What the store had. */
  readonly seen: Fence
}

export interface GuardOptions {
  /** Is told of every rejection. */
  observe?: (event: GuardEvent) => void
  /** How long the store may take to answer one request of the guard's own. Default 10 s. */
  timeout?: Duration
  clock?: Clock
}

const GUARD_OPTIONS = ['observe', 'timeout', 'clock']

/** Every store keeps it: a signed integer of 64 bits. */
export const MAX_TOKEN = 2n ** 63n - 1n
const DEFAULT_TIMEOUT_MS = 10_000
/** Fits every store's column, whatever the characters. */
const MAX_ENGINE_LENGTH = 255

/** A copy that can be relied on: resources sorted, so that two leases meet at theirs in the same order, and unique. */
export function fencedOrThrow(lease: Fenced): Fenced {
  if (typeof lease !== 'object' || lease === null) throw new TypeError(`lease: expected a lease, got ${shown(lease)}`)
  const { token, engine } = lease
  const resources = resourceNames(lease.resources)
  if (typeof token !== 'bigint') throw new TypeError(`token: expected a bigint, got ${shown(token)}`)
  if (token < 0n || token > MAX_TOKEN) {
    throw new RangeError(`token: expected a number from 0 to ${MAX_TOKEN}, got ${token}`)
  }
  engineOrThrow(engine, 'engine')
  return { resources, token, engine }
}

/** An engine never gives way to itself: adopting must not lower a fence of its own. */
export function givingWay(from: unknown, lease: Fenced): string | undefined {
  engineOrThrow(from, 'from')
  return from === lease.engine ? undefined : from
}

export function engineOrThrow(engine: unknown, name: string): asserts engine is string {
  if (!isEngine(engine)) throw new TypeError(`${name}: expected the identity of an engine, got ${shown(engine)}`)
}

export function isEngine(engine: unknown): engine is string {
  return typeof engine === 'string' && engine !== '' && engine.length <= MAX_ENGINE_LENGTH && !AMBIGUOUS.test(engine)
}

/** Half a character becomes another one in UTF-8, and a NUL can't be in PostgreSQL's text. */
// eslint-disable-next-line no-control-regex -- a control character is what it looks for
const AMBIGUOUS = /\p{Surrogate}|\0/u

/** Does what the store has let this lease pass? `from` is an engine whose tokens give way to it. */
export function passes(lease: Fenced, seen: Fence | undefined, from?: string): boolean {
  if (seen === undefined) return true
  if (seen.engine === lease.engine) return seen.token <= lease.token
  return seen.engine === from
}

/** What all guards share: refusing, counting and telling it, and giving up on a store that does not answer. */
export class Post {
  readonly name: string
  readonly timeoutMs: number
  readonly clock: Clock
  readonly deadlines: Deadlines
  readonly #observe: ((event: GuardEvent) => void) | undefined
  #rejections = 0

  constructor(name: string, options: GuardOptions, names: readonly string[] = []) {
    optionsOrThrow(options, [...GUARD_OPTIONS, ...names])
    const { observe, timeout = DEFAULT_TIMEOUT_MS, clock = systemClock } = options
    if (observe !== undefined && typeof observe !== 'function') {
      throw new TypeError(`observe: expected a function, got ${shown(observe)}`)
    }
    this.name = name
    this.timeoutMs = durationMs(timeout, 'timeout', { minMs: 1 })
    this.clock = clock
    this.deadlines = new Deadlines(clock)
    this.#observe = observe
  }

  get rejections(): number {
    return this.#rejections
  }

  /** The error to throw: the token does not pass what the store has. */
  refusal(lease: Fenced, resource: string, seen: Fence): StaleTokenError | ForeignTokenError {
    const { token, engine } = lease
    this.#rejections++
    const reason = seen.engine === engine ? 'stale' : 'foreign'
    if (this.#observe !== undefined) {
      tell(this.#observe, { type: 'rejected', reason, guard: this.name, resource, token, engine, seen })
    }
    return reason === 'stale'
      ? new StaleTokenError([resource], token, seen.token)
      : new ForeignTokenError([resource], token, engine, seen.engine)
  }

  /** What the store answers, or `GuardError` when it takes too long: what was sent may still take effect. */
  answered<T>(resources: readonly string[], answer: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const deadline = this.deadline(resources, reject)
      answer.finally(() => deadline.cancel()).then(resolve, reject)
    })
  }

  deadline(resources: readonly string[], expired: (error: GuardError) => void): Deadline {
    const what = `the ${this.name} guard had no answer within ${this.timeoutMs} ms; whether it took effect is unknown`
    return this.deadlines.start(this.timeoutMs, () => expired(new GuardError(what, resources)))
  }
}

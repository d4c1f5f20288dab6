import { optionsOrThrow } from '../arguments.ts'
import { clockOrThrow, type Clock } from '../clock.ts'
import { Deadlines, type Deadline } from '../deadlines.ts'
import { durationMs, shown, type Duration } from '../duration.ts'
import { inTime } from '../engines/shared/in-time.ts'
import { ForeignTokenError, GuardError, messageOf, RingfenceError, StaleTokenError } from '../errors.ts'
import { tell } from '../events.ts'
import { resourceNames } from '../options.ts'
import { randomOrThrow, type Random } from '../random.ts'

/** What a guard checks: a lease, or what a header or a message has carried over from its holder. */
export interface Fenced {
  readonly resources: readonly string[]
  readonly token: bigint
  /** The identity of the engine that granted it. */
  readonly engine: string
  /** Throws when it is over. Only a lease can know; what was carried over from its holder cannot. */
  assertHeld?(): void
}

/** What a store remembers of a resource: the highest token that it has seen, and the engine that granted it. */
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
  /** How many calls this object has refused for their token, stale or foreign. */
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

/** Options that all guards share. */
export interface GuardOptions {
  /** Called with every rejection. */
  observe?: (event: GuardEvent) => void
  /** How long the store may take to answer one request of the guard itself. Default 10 s. */
  requestTimeout?: Duration
  clock?: Clock
  random?: Random
}

const GUARD_OPTIONS = ['observe', 'requestTimeout', 'clock', 'random']

/** The largest token that every store can keep: a signed integer of 64 bits. */
export const MAX_TOKEN = 2n ** 63n - 1n
const DEFAULT_TIMEOUT_MS = 10_000
/** Fits every store's column, even if each character takes four bytes. */
const MAX_ENGINE_LENGTH = 255

/** Returns a checked copy, whose resources are unique and sorted, so that two leases lock theirs in the same order. */
export function fencedOrThrow(lease: Fenced): Fenced {
  if (typeof lease !== 'object' || lease === null) {
    throw new TypeError(`lease: expected a lease, the first argument, got ${shown(lease)}`)
  }
  const { token, engine } = lease
  const resources = resourceNames(lease.resources)
  if (typeof token !== 'bigint') throw notBigint(token)
  if (token < 0n || token > MAX_TOKEN) {
    throw new RangeError(`token: expected a number from 0 to ${MAX_TOKEN}, got ${token}`)
  }
  engineOrThrow(engine, 'engine')
  return { resources, token, engine }
}

function notBigint(token: unknown): TypeError {
  // JSON has no bigint: there a lease has its token as text.
  const next = typeof token === 'string' && /^\d+$/.test(token) ? '; convert a token that is text by BigInt(text)' : ''
  return new TypeError(`token: expected a bigint, got ${shown(token)}${next}`)
}

/** The work of a transaction, which is rolled back if the lease is over before or after it: then nothing is committed. */
export function whileHeld<Transaction, T>(
  lease: Fenced,
  work: (transaction: Transaction) => T | Promise<T>,
): (transaction: Transaction) => Promise<T> {
  return async (transaction) => {
    lease.assertHeld?.()
    const result = await work(transaction)
    lease.assertHeld?.()
    return result
  }
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

/** Half of a surrogate pair becomes another character in UTF-8, and PostgreSQL's text cannot contain a NUL. */
// eslint-disable-next-line no-control-regex -- a control character is what it looks for
const AMBIGUOUS = /\p{Surrogate}|\0/u

/** Returns whether the fence in the store lets this lease pass. `from` is an engine whose tokens give way to the lease's. */
export function passes(lease: Fenced, seen: Fence | undefined, from?: string): boolean {
  if (seen === undefined) return true
  if (seen.engine === lease.engine) return seen.token <= lease.token
  return seen.engine === from
}

/** Returns whether the store already has this lease's token as the highest. */
export function isAt({ token, engine }: Fenced, seen: Fence | undefined): boolean {
  return seen?.engine === engine && seen.token === token
}

/** What all guards have in common: they refuse, count and report rejections, and give up on a store that does not answer. */
export class GuardContext {
  readonly name: string
  readonly timeoutMs: number
  readonly clock: Clock
  readonly random: Random
  readonly #deadlines: Deadlines
  readonly #observe: ((event: GuardEvent) => void) | undefined
  #rejections = 0

  constructor(name: string, options: GuardOptions, names: readonly string[] = []) {
    optionsOrThrow(options, [...GUARD_OPTIONS, ...names])
    const { observe, requestTimeout = DEFAULT_TIMEOUT_MS } = options
    if (observe !== undefined && typeof observe !== 'function') {
      throw new TypeError(`observe: expected a function, got ${shown(observe)}`)
    }
    this.name = name
    this.timeoutMs = durationMs(requestTimeout, 'requestTimeout', { minMs: 1 })
    this.clock = clockOrThrow(options.clock)
    this.random = randomOrThrow(options.random)
    this.#deadlines = new Deadlines(this.clock)
    this.#observe = observe
  }

  get rejections(): number {
    return this.#rejections
  }

  /** Returns the error to throw when the fence in the store does not let the lease pass. */
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

  /**
   * Returns the store's answer. Rejects with `GuardError` when it takes too long: the request may still take effect. `trouble`
   * says what is wrong with the connection.
   */
  answered<T>(resources: readonly string[], answer: Promise<T>, trouble?: () => string | undefined): Promise<T> {
    return inTime(answer, this.#deadlines, this.timeoutMs, { silence: () => this.#noAnswer(resources, trouble?.()) })
  }

  /** The failure of a driver as a `GuardError`; errors of this package and of wrong arguments stay as they are. */
  failure(resources: readonly string[], cause: unknown, isPermanent = false): unknown {
    if (cause instanceof RingfenceError || cause instanceof TypeError || cause instanceof RangeError) return cause
    const message = `the ${this.name} guard failed: ${reasonOf(cause)}`
    return new GuardError(message, resources, { cause, transient: !isPermanent })
  }

  deadline(resources: readonly string[], expired: (error: GuardError) => void): Deadline {
    return this.#deadlines.start(this.timeoutMs, () => expired(this.#noAnswer(resources)))
  }

  #noAnswer(resources: readonly string[], trouble?: string): GuardError {
    const why = trouble === undefined ? '' : ` (${trouble})`
    const what = `the ${this.name} guard had no answer within ${this.timeoutMs} ms${why}; whether it took effect is unknown`
    return new GuardError(what, resources)
  }
}

/** What is the same in every guard, whose store only has to know how fences are raised. */
export abstract class StoreGuard implements Guard {
  readonly #context: GuardContext

  constructor(context: GuardContext) {
    this.#context = context
  }

  /** Raises the fences of a checked lease. `from` is an engine whose tokens give way to the lease's. */
  abstract raise(lease: Fenced, from?: string): Promise<void>

  get rejections(): number {
    return this.#context.rejections
  }

  async enter(lease: Fenced): Promise<void> {
    await this.raise(fencedOrThrow(lease))
  }

  async adopt(lease: Fenced, from: string): Promise<void> {
    const fenced = fencedOrThrow(lease)
    await this.raise(fenced, givingWay(from, fenced))
  }
}

/** The run is recorded, but those that are too many could not be deleted. */
export function untrimmed(cause: unknown): GuardError {
  const transient = cause instanceof GuardError && cause.transient
  const message = `the run is recorded, but old runs could not be deleted: ${messageOf(cause)}`
  return new GuardError(message, [], { cause, transient })
}

/** An error for several addresses has no message of its own. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof AggregateError) || cause.message !== '') return messageOf(cause)
  return cause.errors.map(messageOf).join('; ')
}

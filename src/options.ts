import { objectOrThrow, optionsOrThrow, signalOrThrow } from './arguments.ts'
import { clockOrThrow, type Clock } from './clock.ts'
import { durationMs, shown, type Duration } from './duration.ts'
import type { Engine } from './engine.ts'
import { tellerOf, type Observer, type Tell } from './events.ts'
import { shortestTtlMs, ttlOf } from './lease.ts'
import { OPEN } from './owner.ts'
import { byteLength, hasAsyncStorage, placeName } from './platform.ts'
import { randomOrThrow, type Random } from './random.ts'

/** How a lease is held: options that every call shares, and defaults of `createLocks`. */
export interface LeaseOptions {
  /** How long a lease lasts unless it is renewed. Default 30 s. */
  ttl?: Duration
  /** Renew in the background while the lease is held. Default true. */
  renew?: boolean
  /** The lease ends after this time even if it could still be renewed. Default: never. */
  maxHold?: Duration
  /**
   * What a renewal that fails does while the lease is still valid by our clock. `keep`: it is tried again until validity ends.
   * `stop`: the lease is over at once, and is released in the background. Default `keep`.
   */
  onDoubt?: OnDoubt
  /** What it is held for, for people who look at the locks. It becomes a part of the owner. Default none. */
  note?: string
}

/** What a renewal that fails does to a lease that is still valid by our clock: it is kept, or it is over at once. */
export type OnDoubt = 'keep' | 'stop'

/** Options of the calls that may wait for a lease: `acquire`, `tryAcquire` and `using`. */
export interface WaitOptions extends LeaseOptions {
  /** Hold it together with others who say the same: many readers, or one writer. Default false. */
  shared?: boolean
  /**
   * How long to wait for a resource that someone else holds: 0 is not at all, Infinity is forever. Default 10 s; of
   * `tryAcquire` 0.
   */
  wait?: Duration
  /** Ends the wait: the call rejects with the signal's reason. */
  signal?: AbortSignal
  /**
   * Joins the lease of a `using` around this call that says the same. In `using`, also lets calls inside of it join. Default
   * false.
   */
  reentrant?: boolean
}

/** Options of `createLocks`: defaults for every call, and what concerns the process as a whole. */
export interface LocksOptions extends LeaseOptions {
  /** How long a call waits for a resource that someone else holds: 0 is not at all, Infinity is forever. Default 10 s. */
  wait?: Duration
  /** Calls inside of a `using` join its lease if it has all of their names. Default false. */
  reentrant?: boolean
  /** The name of this process for people who look at the locks. It follows the random part of the owner. Default `host:pid`. */
  label?: string
  /**
   * How many times in a row, and for how long, a release may hand the lease directly over to the next waiter in this process.
   * Default 8 times and 100 ms.
   */
  handOver?: { count?: number; time?: Duration }
  /** Receives every event. */
  observe?: Observer
  /** For tests: another clock. Default: the system's. */
  clock?: Clock
  /** For tests: another source of ids and random numbers; ids must be unique. Default: the system's. */
  random?: Random
}

export interface LeaseTerms {
  readonly ttlMs: number
  readonly renew: boolean
  readonly maxHoldMs: number
  readonly shared: boolean
  readonly onDoubt: OnDoubt
  readonly note?: string | undefined
  /** A release before this time leaves the lease to run out when it is this old. Default 0. */
  readonly keepMs?: number
  /** Which permit of a semaphore it is. */
  readonly permit?: number
}

export interface WaitTerms extends LeaseTerms {
  readonly waitMs: number
  readonly signal: AbortSignal | undefined
  readonly reentrant: boolean
  /** The caller expects that the wait may end without a lease. Default false. */
  readonly orNull?: boolean
}

export interface Settings {
  readonly defaults: WaitTerms
  readonly label: string
  readonly handOver: { readonly count: number; readonly timeMs: number }
  /** Undefined where nobody observes. */
  readonly tell: Tell | undefined
  readonly clock: Clock
  readonly random: Random
}

/** Longer than a usual critical section, shorter than the usual timeout of a request. */
const DEFAULT_WAIT_MS = 10_000
const DEFAULT_TTL_MS = 30_000
/** Enough to make local contention cost one round trip per section, few enough that other processes wait only milliseconds. */
const DEFAULT_HAND_OVERS = { count: 8, timeMs: 100 }

export const LEASE_OPTIONS = ['ttl', 'renew', 'maxHold', 'onDoubt', 'note']
const WAIT_OPTIONS = [...LEASE_OPTIONS, 'shared', 'wait', 'signal', 'reentrant']
const LOCKS_OPTIONS = [...LEASE_OPTIONS, 'wait', 'reentrant', 'label', 'handOver', 'observe', 'clock', 'random']

/** The options of a call without options, for which the defaults need not be read again. */
export const NO_OPTIONS: WaitOptions = {}

/** The longest name, in bytes of UTF-8: a longer one is not a name but data. */
const MAX_RESOURCE_BYTES = 1024
/** How many resources one call takes: a server takes all of them in one script and serves nobody else meanwhile. */
const MAX_RESOURCES = 100
/** Of a label, and of a note. */
const MAX_LABEL_LENGTH = 200

export function locksSettings(options: LocksOptions, engine: Engine): Settings {
  optionsOrThrow(options, LOCKS_OPTIONS)
  const clock = clockOrThrow(options.clock)
  const random = randomOrThrow(options.random)
  if (options.handOver !== undefined) objectOrThrow(options.handOver, 'handOver')
  const { count = DEFAULT_HAND_OVERS.count, time = DEFAULT_HAND_OVERS.timeMs } = options.handOver ?? {}
  if (!Number.isInteger(count) || count < 0) {
    throw new RangeError(`handOver.count: expected a whole number from 0 on, got ${shown(count)}`)
  }
  if (options.observe !== undefined && typeof options.observe !== 'function') {
    throw new TypeError(`observe: expected a function, got ${shown(options.observe)}`)
  }
  const none: WaitTerms = {
    ttlMs: Math.min(Math.max(DEFAULT_TTL_MS, shortestTtlMs(engine.limits)), engine.limits.maxTtlMs),
    renew: true,
    maxHoldMs: Infinity,
    shared: false,
    onDoubt: 'keep',
    waitMs: DEFAULT_WAIT_MS,
    signal: undefined,
    reentrant: false,
  }
  return {
    defaults: readTerms(options, none, engine),
    label: options.label === undefined ? placeName() : labelOrThrow(options.label),
    handOver: { count, timeMs: durationMs(time, 'handOver.time') },
    tell: tellerOf(options.observe, engine.name),
    clock,
    random,
  }
}

export function waitTerms(
  options: WaitOptions,
  defaults: WaitTerms,
  engine: Engine,
  names: readonly string[] = WAIT_OPTIONS,
): WaitTerms {
  if (options === NO_OPTIONS) return defaults
  optionsOrThrow(options, names)
  return readTerms(options, defaults, engine)
}

function readTerms(options: WaitOptions, defaults: WaitTerms, engine: Engine): WaitTerms {
  const { ttl, renew, maxHold, shared, onDoubt, note, wait, signal, reentrant } = options
  flagOrThrow(renew, 'renew')
  flagOrThrow(shared, 'shared')
  flagOrThrow(reentrant, 'reentrant')
  if (reentrant === true && !hasAsyncStorage) throw new RangeError(NO_REENTRANCY)
  if (onDoubt !== undefined && onDoubt !== 'keep' && onDoubt !== 'stop') {
    throw new TypeError(`onDoubt: expected 'keep' or 'stop', got ${shown(onDoubt)}`)
  }
  if (shared === true && !engine.guarantees.shared) {
    throw new RangeError(
      `shared: expected false, because the ${engine.name} engine has no shared leases; take an exclusive lease, or an engine ` +
        'that has them (docs/kinds/shared.md)',
    )
  }
  signalOrThrow(signal)
  return {
    ttlMs: ttl === undefined ? defaults.ttlMs : ttlOf(ttl, engine.limits),
    renew: renew ?? defaults.renew,
    maxHoldMs:
      maxHold === undefined ? defaults.maxHoldMs : durationMs(maxHold, 'maxHold', { minMs: 1, maxMs: Infinity }),
    shared: shared ?? defaults.shared,
    onDoubt: onDoubt ?? defaults.onDoubt,
    note: note === undefined ? defaults.note : noteOrThrow(note),
    waitMs: wait === undefined ? defaults.waitMs : durationMs(wait, 'wait', { maxMs: Infinity }),
    signal: signal ?? defaults.signal,
    reentrant: reentrant ?? defaults.reentrant,
  }
}

function flagOrThrow(value: unknown, name: string): void {
  if (value !== undefined && typeof value !== 'boolean') {
    throw new TypeError(`${name}: expected true or false, got ${shown(value)}`)
  }
}

/** Sorted and without repetition, so that two requests for the same resources look the same on every server. */
export function resourceNames(given: string | readonly string[]): readonly string[] {
  if (typeof given === 'string') return [resourceName(given)]
  if (!Array.isArray(given))
    throw new TypeError(`resource: expected a string or an array of strings, got ${shown(given)}${asText(given)}`)
  if (given.length === 0 || given.length > MAX_RESOURCES) {
    throw new RangeError(
      `resource: expected 1 to ${MAX_RESOURCES} names, got ${given.length}${given.length === 0 ? '' : '; take one name for all of them'}`,
    )
  }
  return [...new Set(given.map((name) => resourceName(name)))].sort()
}

export function resourceName(name: unknown, option = 'resource'): string {
  if (typeof name !== 'string') throw new TypeError(`${option}: expected a string, got ${shown(name)}${asText(name)}`)
  if (name === '') throw new RangeError(`${option}: expected a name, got an empty string`)
  // eslint-disable-next-line no-control-regex -- control characters are what it looks for
  if (/[\u0000-\u001f\u007f]/.test(name)) {
    throw new RangeError(
      `${option}: expected a name without control characters, got ${JSON.stringify(name.slice(0, 60))}; encode them, ` +
        'for example by encodeURIComponent',
    )
  }
  // A UTF-16 unit takes at most three bytes in UTF-8, so only long names need counting.
  if (name.length * 3 > MAX_RESOURCE_BYTES && byteLength(name) > MAX_RESOURCE_BYTES) {
    throw new RangeError(
      `${option}: expected at most ${MAX_RESOURCE_BYTES} bytes, got ${byteLength(name)}; take a hash of it`,
    )
  }
  if (LONE_SURROGATE.test(name)) {
    throw new RangeError(
      `${option}: expected well-formed Unicode, got ${JSON.stringify(name.slice(0, 60))}; a character was cut in two: cut between characters`,
    )
  }
  return name
}

/** The next step for what is no name but can be one. */
function asText(given: unknown): string {
  return ['number', 'bigint'].includes(typeof given) ? `; write '${String(given)}'` : ''
}

/** Half a character: each of them becomes the same replacement character in UTF-8, so that two names would be one. */
const NO_REENTRANCY =
  'reentrant: expected false, because this runtime has no AsyncLocalStorage to tell which call is inside of which, got true; ' +
  'hand the outer lease to the inner call instead'

const LONE_SURROGATE = /\p{Surrogate}/u

function labelOrThrow(label: unknown): string {
  const text = printable(label, 'label')
  if (!text.includes(OPEN)) return text
  throw new RangeError(`label: expected a name without '${OPEN}', which a note begins with, got ${shown(label)}`)
}

function noteOrThrow(note: unknown): string {
  const text = printable(note, 'note')
  if (text !== '') return text
  throw new RangeError('note: expected a text, got an empty one; leave it out where there is nothing to say')
}

function printable(text: unknown, name: string): string {
  const isText = typeof text === 'string' && text.length <= MAX_LABEL_LENGTH
  // eslint-disable-next-line no-control-regex -- control characters are what it looks for
  if (isText && !/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(text) && !LONE_SURROGATE.test(text)) return text
  throw new TypeError(
    `${name}: expected a string of at most ${MAX_LABEL_LENGTH} printable characters, got ${shown(text)}`,
  )
}

import { durationMs, shown } from '../duration.ts'
import { NOT_WHOLE } from './errors.ts'

/** The settings of redlock 5, of an instance and of a call. */
export interface RedlockSettings {
  /** How much clocks may differ in speed, as a part of the duration. */
  readonly driftFactor: number
  /** How many intervals of `retryDelay` a call waits for a lock that somebody has; -1 is forever. */
  readonly retryCount: number
  /** The length of one of them, in ms. */
  readonly retryDelay: number
  /** How far a retry after a failure may be from `retryDelay`, in ms. */
  readonly retryJitter: number
  /** `using` extends a lock at the latest when this is left of it, in ms. */
  readonly automaticExtensionThreshold: number
}

/** The settings of an instance: those of redlock, and those that it has no word for. */
export interface RedlockInstanceSettings extends RedlockSettings {
  /** Stands before every key. For clients that had a `keyPrefix`. */
  readonly prefix?: string
  /**
   * Several nodes: how long, in ms, a node that restarted does not vote, and how often a longer lock is proved. The same for all
   * processes. Default 60,000.
   */
  readonly maxTtl?: number
}

const DEFAULTS: RedlockSettings = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
}

const NAMES = Object.keys(DEFAULTS) as readonly (keyof RedlockSettings)[]

/** What is not a number counts as not given, as redlock has it. */
export function settingsOf(given: Partial<RedlockSettings> | undefined, defaults = DEFAULTS): RedlockSettings {
  if (given === undefined || given === null) return defaults
  if (typeof given !== 'object') throw new TypeError(`settings: expected an object, got ${shown(given)}`)
  const settings: { -readonly [Name in keyof RedlockSettings]: number } = { ...defaults }
  for (const name of NAMES) {
    const value = given[name]
    if (typeof value !== 'number') continue
    const least = name === 'retryCount' ? -1 : 0
    if (!(value >= least)) throw new RangeError(`${name}: expected a number from ${least} on, got ${shown(value)}`)
    settings[name] = value
  }
  return settings
}

/** How long a call waits: as long as the retries of redlock would take. */
export function waitMsOf({ retryCount, retryDelay }: RedlockSettings): number {
  return retryCount === -1 ? Infinity : Math.ceil(retryCount * Math.max(retryDelay, 1))
}

export function wholeOrThrow(duration: number): void {
  if (Math.floor(duration) !== duration) throw new Error(NOT_WHOLE)
}

/** The name is the one that the argument has in the version of redlock whose call it is. */
export function durationOrThrow(duration: number, name: 'duration' | 'ttl' = 'duration'): void {
  wholeOrThrow(duration)
  durationMs(duration, name, { minMs: 50, shorter: 'use 50 or more' })
}

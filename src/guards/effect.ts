import { durationMs, shown, type Duration } from '../duration.ts'
import { GuardError, messageOf, RingfenceError } from '../errors.ts'
import { resourceName } from '../options.ts'
import type { Fenced } from './guard.ts'

/** What `once` gives: the result of the work, whichever call ran it, and when. */
export interface Effect<T> {
  /** True if this call ran the work, false if an earlier one did. */
  readonly ran: boolean
  /** What the work returned, as JSON has it; undefined if it returned nothing. */
  readonly value: T
  /** When it was recorded: ms since 1970, by the store's clock. */
  readonly at: number
  /** The token of the lease under which it ran. */
  readonly token: bigint
}

/** Options of an effect that happens once. */
export interface EffectOptions {
  /** For how long a repeat finds the result, at least. After that it may run again. Default: forever. */
  keep?: Duration
}

/**
 * The work of `once`, whose result is kept as JSON. What JSON would turn into something else (a Date, a bigint, a Map, a function) is a
 * type error at the work; convert it there, to a string for example.
 */
export type EffectWork<T> = [T] extends [AsJson<T>] ? unknown : { readonly 'the result must be JSON': AsJson<T> }

/** The same type, and never where it is not JSON. */
type AsJson<T> = T extends bigint | symbol | ((...args: never[]) => unknown) | NotPlain
  ? never
  : T extends object
    ? { [K in keyof T]: AsJson<T[K]> }
    : T

type NotPlain = { toJSON: unknown } | ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>

/** A record as its store has it. */
export interface StoredEffect {
  /** JSON; null for work that returned nothing. */
  readonly result: string | null
  readonly at: number
  readonly token: bigint
}

/** A result is a receipt, not data: it is kept for long, and read as a whole. */
export const MAX_RESULT_BYTES = 65_536
/** Several years, so that a mistake of units is noticed. */
const MAX_KEEP_MS = 100 * 365 * 86_400_000

/** Checks a key. It has the bounds of a resource, which every store takes. */
export function keyOrThrow(key: unknown): string {
  return resourceName(key, 'key')
}

export function keepMsOf({ keep }: EffectOptions): number | undefined {
  return keep === undefined ? undefined : durationMs(keep, 'keep', { minMs: 1, maxMs: MAX_KEEP_MS })
}

export function effectOf<T>({ result, at, token }: StoredEffect, ran: boolean): Effect<T> {
  // The same value for the first call and for its repeats: what JSON has made of it.
  return { ran, value: (result === null ? undefined : JSON.parse(result)) as T, at, token }
}

/** Returns the result of the work as JSON, or null if it returned nothing. Throws where a repeat would get something else. */
export function resultText(result: unknown): string | null {
  if (result === undefined) return null
  assertJson(result, 'result', [])
  const text = JSON.stringify(result)
  const bytes = Buffer.byteLength(text)
  if (bytes > MAX_RESULT_BYTES) {
    throw new RangeError(
      `result: expected at most ${MAX_RESULT_BYTES} bytes of JSON, got ${bytes}; write the rest in the work itself, and return ` +
        'where it is',
    )
  }
  return text
}

function assertJson(value: unknown, path: string, within: readonly object[]): void {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return
  if (typeof value === 'number' && Number.isFinite(value)) return
  if (typeof value !== 'object' || !isPlain(value)) throw notJson(path, value)
  if (within.includes(value))
    throw new TypeError(`${path}: expected what JSON can express, got an object within itself`)
  const inside = [...within, value]
  if (Array.isArray(value)) {
    // By index: a hole is undefined, too.
    for (let index = 0; index < value.length; index++) assertJson(value[index], `${path}[${index}]`, inside)
  } else {
    for (const [name, field] of Object.entries(value)) assertJson(field, pathTo(path, name), inside)
  }
}

/** An object of a class, such as a Date, would come back as something else. */
function isPlain(value: object): boolean {
  if (typeof Reflect.get(value, 'toJSON') === 'function') return false
  const prototype: unknown = Object.getPrototypeOf(value)
  // That of another realm has no prototype of its own either.
  return Array.isArray(value) || prototype === null || Object.getPrototypeOf(prototype) === null
}

function pathTo(path: string, name: string): string {
  return /^[a-z_$][\w$]*$/i.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name.slice(0, 60))}]`
}

function notJson(path: string, value: unknown): TypeError {
  const kind = typeof value === 'object' && value !== null ? `a ${value.constructor.name}` : typed(value)
  const next =
    value === undefined
      ? '; leave it out, or use null'
      : typeof value === 'bigint' || typeof value === 'object'
        ? '; convert it, to a string for example'
        : ''
  return new TypeError(`${path}: expected what JSON can express, got ${kind}${next}`)
}

function typed(value: unknown): string {
  return typeof value === 'bigint' ? `the bigint ${value}` : typeof value === 'symbol' ? 'a symbol' : shown(value)
}

/** The work is done, and whether its record was committed is not known. */
export function unknownEffect(key: string, { resources }: Fenced, cause: unknown): unknown {
  if (cause instanceof RingfenceError) return cause
  return new GuardError(
    `whether '${key}' took effect is unknown (${messageOf(cause)}): call once again with the same key to find out`,
    resources,
    { cause },
  )
}

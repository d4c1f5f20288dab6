import { shown } from '../../duration.ts'

/*
 * Tells what a user's client is by the methods and properties that it has. Never by a class name: bundlers shorten those, and
 * two copies of a driver have two classes.
 */

/** A property that a driver has but does not declare, or declares differently from version to version. */
export function property(value: unknown, name: string): unknown {
  const hasProperties = (typeof value === 'object' && value !== null) || typeof value === 'function'
  return hasProperties ? Reflect.get(value, name) : undefined
}

/** The same for a string or a number, as text. */
export function text(value: unknown, name: string): string | undefined {
  const found = property(value, name)
  return typeof found === 'string' || typeof found === 'number' ? String(found) : undefined
}

/** Objects and functions: postgres.js is a function with methods. */
export function hasMethods<Name extends string>(
  value: unknown,
  ...names: readonly Name[]
): value is Record<Name, (...args: never[]) => unknown> {
  return names.every((name) => typeof property(value, name) === 'function')
}

/** What was given instead of a client. It never shows a value: a URL may hold a password. */
export function whatCame(value: unknown): string {
  if (typeof value === 'string') return 'a string: connect first, and pass the client'
  if (hasMethods(value, 'then')) return 'a promise: await it first'
  return value === null || typeof value !== 'object' ? shown(value) : 'an object of another kind'
}

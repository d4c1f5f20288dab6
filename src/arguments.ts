import { shown } from './duration.ts'

export function objectOrThrow(value: unknown, name: string): void {
  if (typeof value !== 'object' || value === null)
    throw new TypeError(`${name}: expected an object, got ${shown(value)}`)
}

/** An option with a slip of the pen in its name would be an option that nobody obeys. */
export function optionsOrThrow(options: object, names: readonly string[]): void {
  objectOrThrow(options, 'options')
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw new TypeError(`options: expected ${names.join(', ')}, got ${shown(name)}`)
  }
}

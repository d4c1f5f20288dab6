import type { Words } from './courier.ts'

/** The owners that a request names, as `newOwner` makes them for the processes of a schedule; those of permits have a note. */
export function ownersIn(text: string): string[] {
  return [...new Set(text.match(/[0-9a-f]{32}@p\d+(?:\.\d+)?(?: \(pool of \d+\))?/g))]
}

/** One for each owner; a request that names none has words, too. */
export function wordsOf(what: string, owners: readonly string[]): readonly Words[] {
  return owners.length === 0 ? [{ what, owner: '' }] : owners.map((owner) => ({ what, owner }))
}

/** Which checker sees which bug, by its name. */
export function seenBy(bugs: readonly { readonly name: string; readonly seenBy: string }[]): Record<string, string> {
  return Object.fromEntries(bugs.map(({ name, seenBy: checker }) => [name, checker]))
}

/** What a driver has and leases have no need of. */
export function unused(): never {
  throw new Error('not for leases')
}

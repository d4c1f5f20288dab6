import type { Random } from './random.ts'

/**
 * Who holds a lease, in one string that every engine stores: 128 random bits, unique to one attempt, a label for people, and
 * what they hold it for: `<id>@<label> (<note>)`. A label has no ' (' in it.
 */
export function newOwner(random: Random, label: string, note?: string): string {
  return note === undefined ? `${random.id()}@${label}` : `${random.id()}@${label}${OPEN}${note})`
}

/** What a label must not contain: the note begins here. */
export const OPEN = ' ('

const OURS = /^[0-9a-f]{32}@/

/** Whether `newOwner` made it, in this process or another. Other software that uses the same keys has no label in its values. */
export function isOurs(owner: string): boolean {
  return OURS.test(owner)
}

/** An owner as people know it: its label and note. Of other software, all of it. */
export function whoIs(owner: string): string {
  return (isOurs(owner) ? owner.slice(owner.indexOf('@') + 1) : owner) || owner
}

/** The label and the note of an owner that `newOwner` made. Of another one, all of it is the label. */
export function ownerParts(owner: string): { readonly label: string; readonly note: string | undefined } {
  const named = owner.slice(owner.indexOf('@') + 1)
  const at = isOurs(owner) && named.endsWith(')') ? named.indexOf(OPEN) : -1
  if (at < 0) return { label: named, note: undefined }
  return { label: named.slice(0, at), note: named.slice(at + OPEN.length, -1) }
}

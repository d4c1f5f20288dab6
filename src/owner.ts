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

/** How much of an owner a message shows. Of ours all: a label and a note have at most 200 characters each. */
const MOST_OF_OURS = 403
const MOST_OF_OTHERS = 200

/** An owner as people know it: its label and note. Of other software, the beginning of what it wrote, which may be anything. */
export function whoIs(owner: string): string {
  const who = (isOurs(owner) ? owner.slice(owner.indexOf('@') + 1) : owner) || owner
  const most = isOurs(owner) ? MOST_OF_OURS : MOST_OF_OTHERS
  return printable(who.length > most ? `${who.slice(0, most)}…` : who)
}

/** The label and the note of an owner that `newOwner` made. Of another one, all of it is the label. */
export function ownerParts(owner: string): { readonly label: string; readonly note: string | undefined } {
  const named = owner.slice(owner.indexOf('@') + 1)
  const at = isOurs(owner) && named.endsWith(')') ? named.indexOf(OPEN) : -1
  if (at < 0) return { label: named, note: undefined }
  return { label: named.slice(0, at), note: named.slice(at + OPEN.length, -1) }
}

/** What could move the cursor, change colours or turn the reading direction, no matter who put it into an owner or an argument. */
const UNPRINTABLE = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** Shown as it would stand in a string of JSON: a terminal does not obey it, and a person sees what is there. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => {
    const escaped = JSON.stringify(character).slice(1, -1)
    return escaped === character ? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}` : escaped
  })
}

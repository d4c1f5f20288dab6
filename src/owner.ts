import type { Random } from './random.ts'

/** Who holds a lease: 128 random bits, unique to one attempt, and a label for people. */
export function newOwner(random: Random, label: string): string {
  return `${random.id()}@${label}`
}

const OURS = /^[0-9a-f]{32}@/

/** Whether `newOwner` made it, in this process or another. Other software that uses the same keys has no label in its values. */
export function isOurs(owner: string): boolean {
  return OURS.test(owner)
}

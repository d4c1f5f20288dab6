import { hashTag, slotOf } from './slot.ts'

/** The keys and the channel of one resource. All three share a hash slot. */
export interface ResourceKeys {
  /** L: the plain resource behind the prefix, so that other Redlock implementations see it too. */
  readonly lock: string
  /** F: the fencing counter. */
  readonly fence: string
  /** Where a release is told. */
  readonly freed: string
}

const FENCE = 'ringfence:fence:'
const FREED = 'ringfence:freed:'
export const FENCE_PATTERN = `${FENCE}*`
/** Written when a node is let in: one that has it was in use, and its value tells in which of its runs. */
export const STAMP_KEY = 'ringfence:stamp'

export function resourceKeys(prefix: string, resource: string): ResourceKeys {
  const lock = prefix + resource
  const tail = slotMate(lock)
  return { lock, fence: FENCE + tail, freed: FREED + tail }
}

/** The resource of a fence key, or undefined if it is of another prefix. */
export function resourceOfFence(prefix: string, fence: string): string | undefined {
  const lock = lockOfTail(fence.slice(FENCE.length))
  return lock?.startsWith(prefix) === true ? lock.slice(prefix.length) : undefined
}

/**
 * A name made from the lock key that lands in its hash slot behind any prefix without braces. A plain key becomes a hash
 * tag; one that has a tag keeps it; one with a stray closing brace can't become a tag, so it gets a numbered tag that
 * happens to hash alike. The first character tells the three apart.
 */
export function slotMate(lock: string): string {
  if (hashTag(lock) !== undefined) return `:${lock}`
  if (!lock.includes('}')) return `{${lock}}`
  return `#{${tagForSlot(slotOf(lock))}}:${lock}`
}

function lockOfTail(tail: string): string | undefined {
  if (tail.startsWith(':')) return tail.slice(1)
  if (tail.startsWith('{')) return tail.slice(1, -1)
  if (tail.startsWith('#')) return tail.slice(tail.indexOf('}:') + 2)
  return undefined
}

const tags = new Map<number, number>()

function tagForSlot(slot: number): number {
  for (let tag = tags.size; !tags.has(slot); tag++) {
    const found = slotOf(String(tag))
    // The smallest number of a slot, always: two processes must come to the same key.
    if (!tags.has(found)) tags.set(found, tag)
  }
  return tags.get(slot)!
}

/** On a Cluster one script reaches one node only. */
export function assertOneSlot(keys: readonly string[], resources: readonly string[]): void {
  if (new Set(keys.map(slotOf)).size === 1) return
  const example = resources.map((resource) => `'{${commonTag(resources)}}${resource}'`).join(', ')
  throw new RangeError(
    `resource: on a Redis Cluster several resources must share a hash slot; give them a common hash tag, e.g. ${example}`,
  )
}

/** The longest beginning that all of them share, or a word of our own. */
function commonTag(resources: readonly string[]): string {
  const [first = '', ...others] = resources
  let length = 0
  while (length < first.length && others.every((other) => other[length] === first[length])) length++
  const shared = first
    .slice(0, length)
    .replace(/[{}]/g, '')
    .replace(/[:/.-]+$/, '')
  return shared === '' ? 'group' : shared
}

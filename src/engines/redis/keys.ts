import { piece, type Piece } from './pieces.ts'
import { hashTag, slotOf } from './slot.ts'

/** The keys and the channel of one resource. All of them share a hash slot. */
export interface ResourceKeys {
  /** L: the plain resource behind the prefix, so that other Redlock implementations see it too. */
  readonly lock: string
  /** F: the fencing counter. */
  readonly fence: string
  /** Q: the owners that wait for it. */
  readonly line: string
  /** S: the readers, while it is shared. */
  readonly readers: string
  /** Where a release or an offer is published. */
  readonly freed: string
}

/** The beginning of all keys that the engine keeps for itself. */
export const OWN_KEYS = 'ringfence:'
const FENCE = `${OWN_KEYS}fence:`
const LINE = `${OWN_KEYS}line:`
const READERS = `${OWN_KEYS}readers:`
const FREED = `${OWN_KEYS}freed:`
export const FENCE_PATTERN = `${FENCE}*`
/** What a node of a quorum knows about its own right to vote: see `stamp.ts`. */
export const STAMP_KEY = `${OWN_KEYS}stamp`

export function resourceKeys(prefix: string, resource: string): ResourceKeys {
  const lock = prefix + resource
  const tail = slotMate(lock)
  return { lock, fence: FENCE + tail, line: LINE + tail, readers: READERS + tail, freed: FREED + tail }
}

/** The keys of a lease's resources, as the scripts take them. */
export interface KeySet {
  /** L and F of each resource, in turn. */
  readonly pairs: readonly string[]
  /** The same, for commands. */
  readonly piece: Piece
  /** The pairs, and then Q of each resource. */
  readonly withLines: Piece
  /** These, and then S of each resource. */
  readonly withReaders: Piece
  readonly channels: readonly string[]
  /** They are for a shared lease: its steps are others. */
  readonly shared: boolean
}

export function keySet(prefix: string, resources: readonly string[], shared = false): KeySet {
  const all = resources.map((resource) => resourceKeys(prefix, resource))
  const pairs = all.flatMap(({ lock, fence }) => [lock, fence])
  const withLines = piece(...pairs, ...all.map(({ line }) => line))
  const withReaders = piece(...withLines.words, ...all.map(({ readers }) => readers))
  return { pairs, piece: piece(...pairs), withLines, withReaders, channels: all.map(({ freed }) => freed), shared }
}

/** The resource of a fence key, or undefined if it is of another prefix. */
export function resourceOfFence(prefix: string, fence: string): string | undefined {
  const lock = lockOfTail(fence.slice(FENCE.length))
  return lock?.startsWith(prefix) === true ? lock.slice(prefix.length) : undefined
}

/**
 * A name made from the lock key that lands in its hash slot behind any prefix without braces. A plain key becomes a hash
 * tag; one that has a tag keeps it; one with a stray closing brace cannot become a tag, so it gets a numbered tag that
 * happens to have the same hash. The first character tells the three apart.
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
    // Always the smallest number of a slot: two processes must come to the same key.
    if (!tags.has(found)) tags.set(found, tag)
  }
  return tags.get(slot)!
}

/** A lock on a counter would make another lock unusable, and one on the stamp would be held forever. */
export function assertNotOwnKeys(prefix: string, resources: readonly string[]): void {
  for (const resource of resources) {
    if (!(prefix + resource).startsWith(OWN_KEYS)) continue
    throw new RangeError(
      `resource: expected a name whose key does not begin with '${OWN_KEYS}', where the engine keeps its own, ` +
        `got '${prefix}${resource}'; give it another name, or the engine another prefix`,
    )
  }
}

/** On a Cluster one script reaches one node only. */
export function assertOneSlot(keys: readonly string[], resources: readonly string[]): void {
  if (new Set(keys.map(slotOf)).size === 1) return
  const example = resources.map((resource) => `'{${commonTag(resources)}}${resource}'`).join(', ')
  throw new RangeError(
    `resource: on a Redis Cluster several resources must share a hash slot; give them a common hash tag, e.g. ${example}`,
  )
}

/** The longest beginning that all of them share, or a word of ours. */
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

/** A znode in the queue for a resource: `_c_<owner>-lock-<number>`, or `_s_<owner>-lock-<number>` for a shared lease. */
export interface QueuePlace {
  readonly name: string
  readonly owner: string
  readonly shared: boolean
  /** Given by the server: one more for every znode that was ever made in this folder. */
  readonly sequence: number
}

const MARK = 'lock-'
const LEFT = 'left-'

/**
 * The name of a resource's folder. Slashes, characters that ZooKeeper forbids (control characters, surrogates) and all others
 * that are not plain are percent-encoded. `.` and `..` would be paths.
 */
export function encodeName(text: string): string {
  if (text === '.' || text === '..') return text.replaceAll('.', '%2E')
  return encodeURIComponent(text).replaceAll('%3A', ':').replaceAll('%40', '@')
}

/** Returns undefined for the name of a znode that we cannot have made. */
export function decodeName(name: string): string | undefined {
  try {
    const text = decodeURIComponent(name)
    return encodeName(text) === name ? text : undefined
  } catch {
    return undefined
  }
}

/**
 * The owner is part of the name, so that a znode whose creation was never confirmed can be found again. Curator, the common
 * library for the JVM, names the znodes of its mutex like this. It orders all that end with `lock-` and a number, so it waits
 * for shared leases, too.
 */
export function placePrefix({ owner, shared = false }: { readonly owner: string; readonly shared?: boolean }): string {
  return `_${shared ? 's' : 'c'}_${encodeName(owner)}-${MARK}`
}

/** The first znode of a folder that is made in the same transaction. */
export function firstPlace(of: { readonly owner: string; readonly shared?: boolean }): string {
  return `${placePrefix(of)}0000000000`
}

/** Returns undefined for a name that is no place in the queue. */
export function readPlace(name: string): QueuePlace | undefined {
  const match = /^(?:_([cs])_(.+)-)?lock-(\d{10}|-\d{9,10})$/.exec(name)
  if (match === null) return undefined
  const owner = match[2] === undefined ? undefined : decodeName(match[2])
  return { name, owner: owner ?? name, shared: match[1] === 's', sequence: Number(match[3]) }
}

/** Below zero: a was there before b. The server's number has 32 bits and may overflow. */
export function compareSequence(a: number, b: number): number {
  return (a - b) | 0
}

/** How many of the first places hold the resource if the first one does: it alone, or all that share it with it. */
export function holdersAmong(places: readonly QueuePlace[]): number {
  const writer = places.findIndex(({ shared }) => !shared)
  return writer < 0 ? places.length : Math.max(writer, 1)
}

/** The name of a lease that was left to run out. It blocks everyone, wherever they are in the queue. */
export function leftName(owner: string): string {
  return `${LEFT}${encodeName(owner)}`
}

/** Returns the owner of such a lease, and undefined for any other znode. */
export function readLeft(name: string): string | undefined {
  return name.startsWith(LEFT) ? decodeName(name.slice(LEFT.length)) : undefined
}

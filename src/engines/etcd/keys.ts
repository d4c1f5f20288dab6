import { createHash } from 'node:crypto'

/**
 * Where things are in etcd. Each resource has a folder, with one key for each owner that holds it or waits for it:
 *
 *     <prefix><resource>/<owner>             bound to an etcd lease of that owner
 *     <prefix><resource>/!shared/<owner>     the same, for a shared lease
 *
 * Keys count in the order of their creation. An exclusive key holds the resource when there is none before it, a shared one
 * when there is no exclusive one before it. One transaction creates all keys of a request, so they share one create
 * revision, and that is its token.
 */
export interface EtcdKeys {
  /** The owner's own keys, in the order of the resources. */
  own(request: KeyOwner): string[]
  readonly folder: (resource: string) => KeyRange
  /** The exclusive keys of a folder. They are one range, because the shared keys come before them: `!` is first. */
  readonly exclusive: (resource: string) => KeyRange
  /** All folders. */
  readonly all: KeyRange
  /** Returns undefined for a key of other software. */
  parse(key: string): ParsedKey | undefined
}

export interface KeyOwner {
  readonly resources: readonly string[]
  readonly owner: string
  readonly shared?: boolean
}

export interface KeyRange {
  readonly key: string
  readonly rangeEnd: string
}

export interface ParsedKey {
  readonly resource: string
  readonly owner: string
  readonly shared: boolean
}

const SHARED = '!shared'

/** The prefix ends with a slash. */
export function keysUnder(prefix: string): EtcdKeys {
  const folder = (resource: string): KeyRange => folderOf(`${prefix}${escaped(resource)}/`)
  return {
    own: ({ resources, owner, shared = false }) =>
      resources.map((resource) => `${folder(resource).key}${shared ? `${SHARED}/` : ''}${escapedOwner(owner)}`),
    folder,
    exclusive: (resource) => {
      const { key, rangeEnd } = folder(resource)
      return { key: folderOf(`${key}${SHARED}/`).rangeEnd, rangeEnd }
    },
    all: folderOf(prefix),
    parse(key) {
      if (!key.startsWith(prefix)) return undefined
      const [resource, ...place] = key.slice(prefix.length).split('/')
      const shared = place.length === 2 && place[0] === SHARED
      const owner = place[shared ? 1 : 0]
      if (resource === undefined || owner === undefined || place.length > (shared ? 2 : 1)) return undefined
      return { resource: unescaped(resource), owner: unescaped(owner), shared }
    },
  }
}

/** All keys that begin with the path, which ends with a slash: '0' comes right after '/'. */
function folderOf(path: string): KeyRange {
  return { key: path, rangeEnd: `${path.slice(0, -1)}0` }
}

/** Escapes slashes, and the percent sign that stands for them. Everything else stays as people wrote it. */
function escaped(name: string): string {
  return name.replaceAll('%', '%25').replaceAll('/', '%2F')
}

/** None comes before the shared keys in the order of names. */
function escapedOwner(owner: string): string {
  // eslint-disable-next-line no-control-regex -- control characters come before `!`
  return escaped(owner).replace(/^[\u0000-!]/, (first) => `%${first.charCodeAt(0).toString(16).padStart(2, '0')}`)
}

function unescaped(name: string): string {
  return name.replace(/%([0-9a-f]{2})/gi, (_code, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
}

/** etcd counts a lease's time in whole seconds. A longer time than asked for does no harm. */
export function secondsOf(ttlMs: number): number {
  return Math.ceil(ttlMs / 1000)
}

/**
 * The id of an owner's etcd lease for a ttl. We choose it, so that a grant can be sent twice, undone without its answer, and
 * found by any process. It is a positive number of 63 bits, as etcd wants it.
 */
export function leaseIdOf(owner: string, seconds: number): string {
  const hash = createHash('sha256').update(`${owner}\n${seconds}`).digest()
  return String((hash.readBigUInt64BE() >> 1n) | 1n)
}

/** The id of the etcd lease that a request begins with. */
export function ownLeaseId({ owner, ttlMs }: { readonly owner: string; readonly ttlMs: number }): string {
  return leaseIdOf(owner, secondsOf(ttlMs))
}

/** The value of a key: the ttl asked for, and since when the owner holds it, or began to wait. Times are of the owner's wall clock. */
export interface EtcdValue {
  readonly ttlMs: number
  /** Undefined for an owner that had to wait: nothing is written when the wait is over. */
  readonly sinceMs?: number
  readonly waitsSinceMs?: number
}

export function valueText({ ttlMs, sinceMs, waitsSinceMs }: EtcdValue): string {
  return JSON.stringify({ ttlMs, sinceMs, waitsSinceMs })
}

export function parseValue(text: string): Partial<EtcdValue> {
  try {
    const { ttlMs, sinceMs, waitsSinceMs } = JSON.parse(text) as Record<string, unknown>
    return {
      ...(typeof ttlMs === 'number' ? { ttlMs } : {}),
      ...(typeof sinceMs === 'number' ? { sinceMs } : {}),
      ...(typeof waitsSinceMs === 'number' ? { waitsSinceMs } : {}),
    }
  } catch {
    // Other software wrote it.
    return {}
  }
}

import { createHash } from 'node:crypto'

/**
 * Where things are in etcd. Each resource has a folder, with one key for each owner that holds it or waits for it:
 *
 *     <prefix><resource>/<owner>     bound to an etcd lease of that owner
 *
 * The owner of the key that was created first holds the resource; the others wait in the order of creation. One transaction
 * creates all keys of a request, so they share one create revision, and that is its token.
 */
export interface EtcdKeys {
  /** The owner's own keys, in the order of the resources. */
  own(resources: readonly string[], owner: string): string[]
  folder(resource: string): KeyRange
  /** All folders. */
  readonly all: KeyRange
  /** Returns undefined for a key of other software. */
  parse(key: string): ParsedKey | undefined
}

export interface KeyRange {
  readonly key: string
  readonly rangeEnd: string
}

export interface ParsedKey {
  readonly resource: string
  readonly owner: string
}

/** The prefix ends with a slash. */
export function keysUnder(prefix: string): EtcdKeys {
  return {
    own: (resources, owner) => resources.map((resource) => `${prefix}${escaped(resource)}/${escaped(owner)}`),
    folder: (resource) => folderOf(`${prefix}${escaped(resource)}/`),
    all: folderOf(prefix),
    parse(key) {
      if (!key.startsWith(prefix)) return undefined
      const [resource, owner, ...more] = key.slice(prefix.length).split('/')
      if (resource === undefined || owner === undefined || more.length > 0) return undefined
      return { resource: unescaped(resource), owner: unescaped(owner) }
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

function unescaped(name: string): string {
  return name.replace(/%2F|%25/g, (code) => (code === '%2F' ? '/' : '%'))
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

/** The value of a key: the ttl asked for, and since when the owner holds it. */
export interface EtcdValue {
  readonly ttlMs: number
  /** By the owner's wall clock. Undefined for an owner that had to wait: nothing is written when the wait is over. */
  readonly sinceMs?: number
}

export function valueText({ ttlMs, sinceMs }: EtcdValue): string {
  return JSON.stringify(sinceMs === undefined ? { ttlMs } : { ttlMs, sinceMs })
}

export function parseValue(text: string): Partial<EtcdValue> {
  try {
    const { ttlMs, sinceMs } = JSON.parse(text) as Record<string, unknown>
    return {
      ...(typeof ttlMs === 'number' ? { ttlMs } : {}),
      ...(typeof sinceMs === 'number' ? { sinceMs } : {}),
    }
  } catch {
    // Other software wrote it.
    return {}
  }
}

import { createHash } from 'node:crypto'

/**
 * Where things are in etcd. Each resource has a folder, in it one key for everyone who holds it or waits for it:
 *
 *     <prefix><resource>/<owner>     bound to an etcd lease of that owner's
 *
 * Whoever's key in a folder was created first has the resource; the others wait in the order of creation. The keys of one
 * request are created in one transaction, so they share one create revision, and that is its token.
 */
export interface Keys {
  /** The owner's own keys, in the order of the resources. */
  own(resources: readonly string[], owner: string): string[]
  folder(resource: string): Range
  /** All folders. */
  readonly all: Range
  /** Undefined for a key of other software. */
  parse(key: string): Place | undefined
}

export interface Range {
  readonly key: string
  readonly rangeEnd: string
}

export interface Place {
  readonly resource: string
  readonly owner: string
}

/** The prefix ends with a slash. */
export function keysUnder(prefix: string): Keys {
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

/** All that begins with the path, which ends with a slash: '0' comes right after '/'. */
function folderOf(path: string): Range {
  return { key: path, rangeEnd: `${path.slice(0, -1)}0` }
}

/** Only a slash must not stay, and what stands for it; all else is left as people wrote it. */
function escaped(name: string): string {
  return name.replaceAll('%', '%25').replaceAll('/', '%2F')
}

function unescaped(name: string): string {
  return name.replace(/%2F|%25/g, (code) => (code === '%2F' ? '/' : '%'))
}

/** etcd counts a lease's time in whole seconds; longer than asked for does no harm. */
export function secondsOf(ttlMs: number): number {
  return Math.ceil(ttlMs / 1000)
}

/**
 * The id of an owner's etcd lease for a ttl: chosen by us, so that a grant can be sent twice, undone without having heard
 * its answer, and found by any process. Positive, in 63 bits, as etcd wants it.
 */
export function leaseIdOf(owner: string, seconds: number): string {
  const hash = createHash('sha256').update(`${owner}\n${seconds}`).digest()
  return String((hash.readBigUInt64BE() >> 1n) | 1n)
}

/** What a key says besides who: the ttl asked for, and since when by the owner's own clock. */
export interface Value {
  readonly ttlMs: number
  /** Wall clock. Undefined for one who had to wait: nobody writes again when it is his turn. */
  readonly sinceMs?: number
}

export function valueText({ ttlMs, sinceMs }: Value): string {
  return JSON.stringify(sinceMs === undefined ? { ttlMs } : { ttlMs, sinceMs })
}

export function parseValue(text: string): Partial<Value> {
  try {
    const { ttlMs, sinceMs } = JSON.parse(text) as Record<string, unknown>
    return {
      ...(typeof ttlMs === 'number' ? { ttlMs } : {}),
      ...(typeof sinceMs === 'number' ? { sinceMs } : {}),
    }
  } catch {
    // Other software's.
    return {}
  }
}

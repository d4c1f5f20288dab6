/** What a lock's key holds: the owner, and what the servers don't tell about his session. */
export interface Value {
  readonly owner: string
  readonly ttlMs: number
  /** By the owner's own wall clock. */
  readonly sinceMs: number
}

/**
 * One key a resource. Keys are parts of URLs here, which Go cleans of dots and Consul refuses with characters that can't be
 * printed, so all but the plainest characters are escaped; people still see `order:42`.
 */
export function keyOf(prefix: string, resource: string): string {
  const escaped = encodeURIComponent(resource).replaceAll('%3A', ':').replaceAll('%40', '@')
  return prefix + (/^\.+$/.test(escaped) ? escaped.replaceAll('.', '%2E') : escaped)
}

/** Undefined for a key of other software. */
export function resourceOf(prefix: string, key: string): string | undefined {
  const escaped = key.slice(prefix.length)
  if (!key.startsWith(prefix) || escaped === '' || escaped.includes('/')) return undefined
  try {
    return decodeURIComponent(escaped)
  } catch {
    return undefined
  }
}

export function valueText(value: Value): string {
  return JSON.stringify(value)
}

/** Undefined for other software's. */
export function parseValue(text: string): Value | undefined {
  try {
    const { owner, ttlMs, sinceMs } = JSON.parse(text) as Record<string, unknown>
    if (typeof owner !== 'string' || typeof ttlMs !== 'number' || typeof sinceMs !== 'number') return undefined
    return { owner, ttlMs, sinceMs }
  } catch {
    return undefined
  }
}

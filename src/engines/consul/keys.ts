/** The value of a lock's key: the owner, and what the servers do not tell about its session. */
export interface ConsulValue {
  readonly owner: string
  readonly ttlMs: number
  /** By the owner's own wall clock. */
  readonly sinceMs: number
}

/**
 * One key for each resource. Keys are parts of URLs. Go removes dots from these, and Consul refuses characters that cannot be
 * printed, so all but the plainest characters are escaped. People still see `order:42`.
 */
export function keyOf(prefix: string, resource: string): string {
  const escaped = encodeURIComponent(resource).replaceAll('%3A', ':').replaceAll('%40', '@')
  return prefix + (/^\.+$/.test(escaped) ? escaped.replaceAll('.', '%2E') : escaped)
}

/** Returns undefined for a key of other software. */
export function resourceOf(prefix: string, key: string): string | undefined {
  const escaped = key.slice(prefix.length)
  if (!key.startsWith(prefix) || escaped === '' || escaped.includes('/')) return undefined
  try {
    return decodeURIComponent(escaped)
  } catch {
    return undefined
  }
}

export function valueText(value: ConsulValue): string {
  return JSON.stringify(value)
}

/** Returns undefined for what other software wrote. */
export function parseValue(text: string): ConsulValue | undefined {
  try {
    const { owner, ttlMs, sinceMs } = JSON.parse(text) as Record<string, unknown>
    if (typeof owner !== 'string' || typeof ttlMs !== 'number' || typeof sinceMs !== 'number') return undefined
    return { owner, ttlMs, sinceMs }
  } catch {
    return undefined
  }
}

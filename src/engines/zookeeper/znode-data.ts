/** The data of a znode. */
export interface ZnodeData {
  readonly ttlMs: number
  /** How long the lease had been held when this was written, by the holder's own clock; undefined while it waits. */
  readonly heldMs?: number
  /** Only for a lease that was left to run out: its znode is not the one that was granted. */
  readonly token?: bigint
}

export function encodeData({ ttlMs, heldMs, token }: ZnodeData): Buffer {
  return Buffer.from(JSON.stringify({ ttlMs, heldMs, token: token?.toString() }))
}

/** Returns undefined for what other software wrote. */
export function decodeData(data: Buffer | undefined): ZnodeData | undefined {
  if (data === undefined) return undefined
  try {
    const { ttlMs, heldMs, token } = JSON.parse(data.toString('utf8')) as Record<string, unknown>
    if (typeof ttlMs !== 'number') return undefined
    return {
      ttlMs,
      ...(typeof heldMs === 'number' ? { heldMs } : {}),
      ...(typeof token === 'string' ? { token: BigInt(token) } : {}),
    }
  } catch {
    return undefined
  }
}

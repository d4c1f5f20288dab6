/** What is written on a node. */
export interface Note {
  readonly ttlMs: number
  /** How long it had been held when this was written, by the holder's own clock; undefined while it waits. */
  readonly heldMs?: number
  /** Of a lease that was left to run out: its node is not the one that was granted. */
  readonly token?: bigint
}

export function writeNote({ ttlMs, heldMs, token }: Note): Buffer {
  return Buffer.from(JSON.stringify({ ttlMs, heldMs, token: token?.toString() }))
}

/** Undefined for what other software wrote. */
export function readNote(data: Buffer | undefined): Note | undefined {
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

/**
 * What every driver's reply is turned into, with any RESP version, type mapping or decoder of the user's client. Buffers
 * become strings; RESP3's maps become the flat lists that RESP2 sends, booleans become 1 and 0. A reply that is
 * plain already, as nearly all are, is returned as it is.
 */
export function plain(reply: unknown): unknown {
  if (typeof reply === 'string' || typeof reply === 'number') return reply
  if (reply === null || reply === undefined) return null
  if (Array.isArray(reply)) return reply.every(isScalar) ? reply : reply.map(plain)
  if (typeof reply === 'boolean') return reply ? 1 : 0
  if (typeof reply === 'bigint') return Number.isSafeInteger(Number(reply)) ? Number(reply) : reply.toString()
  if (reply instanceof Uint8Array) return Buffer.from(reply.buffer, reply.byteOffset, reply.byteLength).toString()
  if (reply instanceof Map) return [...reply].flat().map(plain)
  if (reply instanceof Set) return [...reply].map(plain)
  if (reply instanceof Error) return reply
  return Object.entries(reply).flat().map(plain)
}

function isScalar(reply: unknown): boolean {
  return typeof reply === 'string' || typeof reply === 'number' || reply === null
}

/** CRC16/XMODEM, as Redis Cluster uses it. */
const CRC16_POLYNOMIAL = 0x1021
const SLOTS = 16384

const table = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = (crc << 1) ^ (crc & 0x8000 ? CRC16_POLYNOMIAL : 0)
  return crc & 0xffff
})

/** The hash slot of a key or of a sharded channel: of its first non-empty `{tag}` where it has one. */
export function slotOf(key: string): number {
  let crc = 0
  for (const byte of new TextEncoder().encode(hashTag(key) ?? key))
    crc = ((crc << 8) & 0xffff) ^ (table[(crc >> 8) ^ byte] ?? 0)
  return crc % SLOTS
}

/** The part of a key between its first brace and the next closing one, unless empty: the only part that is hashed. */
export function hashTag(key: string): string | undefined {
  const open = key.indexOf('{')
  if (open < 0) return undefined
  const close = key.indexOf('}', open + 1)
  return close > open + 1 ? key.slice(open + 1, close) : undefined
}

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
  const open = key.indexOf('{')
  const close = open === -1 ? -1 : key.indexOf('}', open + 1)
  const hashed = close > open + 1 ? key.slice(open + 1, close) : key
  let crc = 0
  for (const byte of Buffer.from(hashed)) crc = ((crc << 8) & 0xffff) ^ (table[(crc >> 8) ^ byte] ?? 0)
  return crc % SLOTS
}

import { nodeCrypto } from '../../platform.ts'

/** SHA-1 of a text, by which Redis names scripts: nothing rests on it being hard to forge. */
export function sha1(text: string): string {
  return nodeCrypto()?.createHash('sha1').update(text).digest('hex') ?? sha1InScript(text)
}

/** Browsers have none that answers at once. This takes a millisecond for a script until it is compiled, so not where Node runs. */
export function sha1InScript(text: string): string {
  const bytes = new TextEncoder().encode(text)
  const { length } = bytes
  const words = new Int32Array((((length + 8) >> 6) + 1) * 16)
  for (let at = 0; at < length; at++) words[at >> 2]! |= bytes[at]! << (24 - (at % 4) * 8)
  words[length >> 2]! |= 0x80 << (24 - (length % 4) * 8)
  words[words.length - 1] = length * 8
  const sums = Int32Array.of(0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0)
  const schedule = new Int32Array(80)
  for (let start = 0; start < words.length; start += 16) {
    let [a, b, c, d, e] = sums as unknown as [number, number, number, number, number]
    for (let round = 0; round < 80; round++) {
      schedule[round] =
        round < 16
          ? words[start + round]!
          : rotated(schedule[round - 3]! ^ schedule[round - 8]! ^ schedule[round - 14]! ^ schedule[round - 16]!, 1)
      const mixed =
        round < 20
          ? ((b & c) | (~b & d)) + 0x5a827999
          : round < 40
            ? (b ^ c ^ d) + 0x6ed9eba1
            : round < 60
              ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
              : (b ^ c ^ d) + 0xca62c1d6
      const next = (rotated(a, 5) + mixed + e + schedule[round]!) | 0
      e = d
      d = c
      c = rotated(b, 30)
      b = a
      a = next
    }
    for (const [index, value] of [a, b, c, d, e].entries()) sums[index]! += value
  }
  return Array.from(sums, (sum) => (sum >>> 0).toString(16).padStart(8, '0')).join('')
}

function rotated(word: number, by: number): number {
  return (word << by) | (word >>> (32 - by))
}

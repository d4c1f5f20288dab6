import { describe, expect, test } from 'vitest'
import { systemRandom } from '../../src/random.ts'

describe('random ids', () => {
  test('are 128 bits in hexadecimal, and none comes twice, over many pages of the pool', () => {
    const ids = Array.from({ length: 20_000 }, () => systemRandom.id())
    expect(ids.every((id) => /^[0-9a-f]{32}$/.test(id))).toBe(true)
    expect(new Set(ids).size).toBe(ids.length)
  })

  test('have bits that are set half of the time, each of them', () => {
    const count = 4000
    const set = Array.from({ length: 128 }, () => 0)
    for (let i = 0; i < count; i++) {
      const bits = BigInt(`0x${systemRandom.id()}`)
      for (const bit of set.keys()) set[bit]! += Number((bits >> BigInt(bit)) & 1n)
    }
    // Seven standard deviations: a fair generator fails once in a billion runs.
    const allowance = 7 * Math.sqrt(count / 4)
    for (const times of set) expect(Math.abs(times - count / 2)).toBeLessThan(allowance)
  })

  test('are not disturbed by fractions drawn in between', () => {
    const ids = new Set<string>()
    for (let i = 0; i < 5000; i++) {
      ids.add(systemRandom.id())
      systemRandom.fraction()
    }
    expect(ids.size).toBe(5000)
  })
})

describe('random fractions', () => {
  test('lie from 0 to below 1, and spread over the whole range', () => {
    const fractions = Array.from({ length: 10_000 }, () => systemRandom.fraction())
    expect(fractions.every((fraction) => fraction >= 0 && fraction < 1)).toBe(true)
    const tenths = new Set(fractions.map((fraction) => Math.floor(fraction * 10)))
    expect(tenths.size).toBe(10)
    const mean = fractions.reduce((sum, fraction) => sum + fraction, 0) / fractions.length
    expect(Math.abs(mean - 0.5)).toBeLessThan(0.03)
  })
})

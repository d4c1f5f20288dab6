import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { durationMs, shown } from '../../src/duration.ts'

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const unit = fc.constantFrom('ms', 's', 'm', 'h', 'd')

describe('a duration', () => {
  test.each([
    [0, 0],
    [1500, 1500],
    ['250ms', 250],
    ['30s', 30_000],
    ['5m', 300_000],
    ['1h', 3_600_000],
    ['7d', 604_800_000],
    ['1.5s', 1500],
    ['0.1ms', 1],
    [0.2, 1],
  ])('%s is %d ms', (given, ms) => {
    expect(durationMs(given, 'ttl')).toBe(ms)
  })

  test('with any whole number and unit is that many milliseconds', () => {
    fc.assert(
      fc.property(fc.nat(100_000), unit, (count, unit) => {
        expect(durationMs(`${count}${unit}`, 'ttl')).toBe(count * UNITS[unit])
      }),
    )
  })

  test('written in any unit that divides it reads as the same time', () => {
    fc.assert(
      fc.property(fc.nat(1_000_000), unit, (count, unit) => {
        const ms = durationMs(`${count}${unit}`, 'ttl')
        expect(durationMs(ms, 'ttl')).toBe(ms)
        expect(durationMs(`${ms}ms`, 'ttl')).toBe(ms)
      }),
    )
  })

  test('with a fraction is rounded up to whole milliseconds, never down', () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1e9, noNaN: true }), (ms) => {
        const whole = durationMs(ms, 'ttl')
        expect(Number.isInteger(whole)).toBe(true)
        expect(whole).toBeGreaterThanOrEqual(ms)
        expect(Math.floor(ms)).toBeGreaterThanOrEqual(whole - 1)
      }),
    )
  })

  test.each([
    ['', "''"],
    ['5', "'5'"],
    ['s', "'s'"],
    ['-5s', "'-5s'"],
    ['5 s', "'5 s'"],
    ['5S', "'5S'"],
    ['1e3ms', "'1e3ms'"],
    ['5s\n', String.raw`"5s\n"`],
    ['0x10s', "'0x10s'"],
    [Number.NaN, 'NaN'],
    [undefined, 'undefined'],
    [null, 'null'],
    [true, 'true'],
    [5n, '5'],
    [Symbol('x'), 'Symbol(x)'],
    [{}, 'an object'],
    [[5], 'an array'],
    [() => 5, 'a function'],
  ])('%o is a TypeError that shows what came', (given, text) => {
    expect(() => durationMs(given, 'wait')).toThrow(TypeError)
    expect(() => durationMs(given, 'wait')).toThrow(`wait: expected a number of milliseconds or a text such as`)
    expect(() => durationMs(given, 'wait')).toThrow(`got ${text}`)
  })

  test('below zero is out of range, however little', () => {
    fc.assert(
      fc.property(fc.double({ max: -Number.MIN_VALUE, noNaN: true }), (ms) => {
        expect(() => durationMs(ms, 'wait')).toThrow(RangeError)
        expect(() => durationMs(ms, 'wait')).toThrow(/^wait: expected at least 0 ms, got -/)
      }),
    )
  })

  test('out of its limits is a RangeError that names both of them', () => {
    const limits = { minMs: 50, maxMs: 60_000 }
    for (const given of [0, 49, 60_001, '2m', Infinity, Number.MAX_VALUE]) {
      expect(() => durationMs(given, 'ttl', limits)).toThrow(RangeError)
      expect(() => durationMs(given, 'ttl', limits)).toThrow('ttl: expected 50 ms to 60 s, got ')
    }
    expect(durationMs(50, 'ttl', limits)).toBe(50)
    expect(durationMs('1m', 'ttl', limits)).toBe(60_000)
  })

  test('without end is taken only where the limit has none', () => {
    expect(durationMs(Infinity, 'wait', { maxMs: Infinity })).toBe(Infinity)
    expect(() => durationMs(Infinity, 'ttl')).toThrow(RangeError)
  })
})

describe('a value in a message', () => {
  test('is cut when it is long', () => {
    expect(shown('x'.repeat(1000))).toBe(`'${'x'.repeat(60)}…'`)
  })
})

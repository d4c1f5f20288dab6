import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { memory } from '../../src/engines/memory.ts'
import { locksSettings, resourceNames, waitTerms, type WaitTerms } from '../../src/options.ts'

const engine = memory()
const defaults: WaitTerms = locksSettings({}, engine).defaults

describe('the defaults', () => {
  test('are 30 s, renewed, without end, exclusive, waiting 10 s', () => {
    expect(defaults).toEqual({
      ttlMs: 30_000,
      renew: true,
      maxHoldMs: Infinity,
      shared: false,
      onDoubt: 'keep',
      note: undefined,
      waitMs: 10_000,
      signal: undefined,
      reentrant: false,
    })
  })

  test('never exceed what the engine grants', () => {
    const short = Object.assign(memory(), { limits: { maxTtlMs: 5000, driftMs: () => 0 } })
    expect(locksSettings({}, short).defaults.ttlMs).toBe(5000)
    expect(() => locksSettings({ ttl: '6s' }, short)).toThrow('ttl: expected 50 ms to 5 s, got')
  })

  test('of the locks hold for every call that does not say otherwise', () => {
    const settings = locksSettings({ ttl: '5s', wait: '1s', renew: false, maxHold: '1m' }, engine).defaults
    expect(waitTerms({}, settings, engine)).toEqual(settings)
    expect(waitTerms({ ttl: '7s', renew: true }, settings, engine)).toEqual({ ...settings, ttlMs: 7000, renew: true })
    expect(waitTerms({ wait: 0 }, settings, engine).waitMs).toBe(0)
  })
})

describe('valid options', () => {
  test('are taken as they are, whatever their combination', () => {
    const ms = fc.integer({ min: 50, max: 1e9 })
    const options = fc.record(
      {
        ttl: ms,
        renew: fc.boolean(),
        maxHold: ms,
        shared: fc.boolean(),
        onDoubt: fc.constantFrom('keep' as const, 'stop' as const),
        reentrant: fc.boolean(),
        wait: fc.oneof(fc.nat(), fc.constant(Infinity)),
      },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(options, (options) => {
        const terms = waitTerms(options, defaults, engine)
        expect(terms).toEqual({
          ttlMs: options.ttl ?? 30_000,
          renew: options.renew ?? true,
          maxHoldMs: options.maxHold ?? Infinity,
          shared: options.shared ?? false,
          onDoubt: options.onDoubt ?? 'keep',
          waitMs: options.wait ?? 10_000,
          signal: undefined,
          reentrant: options.reentrant ?? false,
        })
      }),
    )
  })
})

describe('a bad option', () => {
  test.each([
    [{ note: '' }, RangeError, /^note: expected a text, got an empty one; leave it out/],
    [{ note: 7 }, TypeError, /^note: expected a string of at most 200 printable characters, got 7$/],
    [{ note: 'a\nb' }, TypeError, /^note: /],
    [{ note: 'half of a pair: \ud800' }, TypeError, /^note: /],
    [{ note: 'x'.repeat(201) }, TypeError, /^note: /],
    [{ ttl: 49 }, RangeError, /^ttl: expected at least 50 ms, got 49$/],
    [{ ttl: 0 }, RangeError, /^ttl: .*got 0$/],
    [{ ttl: -1 }, RangeError, /^ttl: .*got -1$/],
    [{ ttl: Number.NaN }, TypeError, /^ttl: .*got NaN$/],
    [{ ttl: Infinity }, RangeError, /^ttl: .*got Infinity$/],
    [{ ttl: 1e300 }, RangeError, /^ttl: /],
    [{ ttl: null }, TypeError, /^ttl: .*got null$/],
    [{ ttl: '30' }, TypeError, /^ttl: .*got '30'$/],
    [{ wait: -1 }, RangeError, /^wait: expected at least 0 ms, got -1$/],
    [{ wait: 'long' }, TypeError, /^wait: .*'1h', or Infinity, got 'long'$/],
    [{ ttl: 'Infinity' }, TypeError, /^ttl: .*'1h', got 'Infinity'$/],
    [{ maxHold: 0 }, RangeError, /^maxHold: expected at least 1 ms, got 0$/],
    [{ renew: 'yes' }, TypeError, /^renew: expected true or false, got 'yes'$/],
    [{ renew: 0 }, TypeError, /^renew: /],
    [{ reentrant: 'yes' }, TypeError, /^reentrant: expected true or false, got 'yes'$/],
    [{ onDoubt: 'end' }, TypeError, /^onDoubt: expected 'keep' or 'stop', got 'end'$/],
    [{ signal: {} }, TypeError, /^signal: expected an AbortSignal, got an object$/],
    [{ signal: new AbortController() }, TypeError, /^signal: expected an AbortSignal/],
    ['30s', TypeError, /^options: expected an object, got '30s'$/],
    [null, TypeError, /^options: expected an object, got null$/],
  ])('%o names itself, what was expected and what came', (options, kind, message) => {
    expect(() => waitTerms(options as never, defaults, engine)).toThrow(kind)
    expect(() => waitTerms(options as never, defaults, engine)).toThrow(message)
    expect(() => locksSettings(options as never, engine)).toThrow(kind)
  })

  test.each([
    [{ observe: 'console' }, TypeError, /^observe: expected a function, got 'console'$/],
    [{ label: 5 }, TypeError, /^label: expected a string of at most 200 printable characters, got 5$/],
    [{ label: 'x'.repeat(201) }, TypeError, /^label: /],
    [{ label: 'two\nlines' }, TypeError, /^label: .*got "two\\nlines"$/],
    [{ handOver: { count: -1 } }, RangeError, /^handOver.count: expected a whole number from 0 on, got -1$/],
    [{ handOver: { count: 1.5 } }, RangeError, /^handOver.count: /],
    [{ handOver: { count: '8' } }, RangeError, /^handOver.count: .*got '8'$/],
    [{ handOver: { time: -1 } }, RangeError, /^handOver.time: /],
    [{ handOver: 8 }, TypeError, /^handOver: expected an object, got 8$/],
    [{ handOver: null }, TypeError, /^handOver: expected an object, got null$/],
    [{ clock: Date }, TypeError, /^clock: expected an object/],
    [{ clock: {} }, TypeError, /^clock: .*monotonicMs/],
    [{ random: Math }, TypeError, /^random: expected an object with id, fraction, got none for id, fraction$/],
  ])('of the locks, %o, names itself, what was expected and what came', (options, kind, message) => {
    expect(() => locksSettings(options as never, engine)).toThrow(kind)
    expect(() => locksSettings(options as never, engine)).toThrow(message)
  })
})

describe('resource names', () => {
  test('come sorted and without repetition, so that two requests for the same look the same', () => {
    const name = fc
      .string({ minLength: 1, maxLength: 20, unit: 'grapheme' })
      .filter((text) => !/[\p{Cc}\p{Cs}]/u.test(text))
    fc.assert(
      fc.property(fc.array(name, { minLength: 1, maxLength: 100 }), (names) => {
        const taken = resourceNames(names)
        expect(new Set(taken)).toEqual(new Set(names))
        expect(taken).toEqual([...new Set(names)].sort())
        expect(resourceNames(names.toReversed())).toEqual(taken)
      }),
    )
  })

  test('may be of any script and as long as 1024 bytes', () => {
    expect(resourceNames('Ω/日本/🚀')).toEqual(['Ω/日本/🚀'])
    expect(resourceNames('x'.repeat(1024))).toHaveLength(1)
    expect(resourceNames('🚀'.repeat(256))).toHaveLength(1)
    expect(() => resourceNames('x'.repeat(1025))).toThrow('resource: expected at most 1024 bytes, got 1025')
    expect(() => resourceNames('🚀'.repeat(257))).toThrow('resource: expected at most 1024 bytes, got 1028')
  })

  test('with half a character are refused, wherever it stands', () => {
    const half = fc.integer({ min: 0xd800, max: 0xdfff }).map((unit) => String.fromCharCode(unit))
    fc.assert(
      fc.property(fc.string(), half, fc.string(), (before, half, after) => {
        const text = `a${before.replace(/\p{Cc}/gu, '')}-${half}-${after.replace(/\p{Cc}/gu, '')}`
        expect(() => resourceNames(text)).toThrow(/^resource: expected well-formed Unicode, got "/)
      }),
    )
  })
})

describe('the shortest ttl of an engine', () => {
  const limits = { minTtlMs: 10_000, maxTtlMs: 60_000, shorter: 'the server says so', driftMs: () => 0 }
  const engine = Object.assign(memory(), { limits })

  test('is refused below, with the reason the engine gives', () => {
    expect(() => locksSettings({ ttl: '9s' }, engine)).toThrow(
      new RangeError("ttl: expected 10 s to 60 s, got '9s'; the server says so"),
    )
    expect(() => locksSettings({ ttl: '10s' }, engine)).not.toThrow()
    expect(() => locksSettings({ ttl: -1 }, engine)).toThrow('the server says so')
    expect(() => locksSettings({ ttl: '61s' }, engine)).toThrow(/got '61s'$/)
  })
})

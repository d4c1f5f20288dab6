import { describe, expect, test } from 'vitest'
import { hasMethods, property, text } from '../../../../src/engines/shared/shape.ts'

describe('the shape of a client', () => {
  test('is its methods, of an object and of a function', () => {
    expect(hasMethods({ query: () => undefined, end: () => undefined }, 'query', 'end')).toBe(true)
    expect(
      hasMethods(
        Object.assign(() => undefined, { unsafe: () => undefined }),
        'unsafe',
      ),
    ).toBe(true)
    expect(hasMethods({ query: 'text' }, 'query')).toBe(false)
    expect(hasMethods({ query: () => undefined }, 'query', 'end')).toBe(false)
  })

  test.each([undefined, null, 1, 'query'])('%s has no methods and no properties of its own', (value) => {
    expect(hasMethods(value, 'query')).toBe(false)
    expect(property(value, 'length')).toBeUndefined()
  })

  test('is also its properties, strings and numbers as text', () => {
    const value = { port: 6379, host: 'localhost', tls: {} }
    expect(['port', 'host', 'tls', 'none'].map((name) => text(value, name))).toEqual([
      '6379',
      'localhost',
      undefined,
      undefined,
    ])
    expect(property(value, 'tls')).toBe(value.tls)
  })
})

import { assert, property, string } from 'fast-check'
import { expect, test } from 'vitest'
import { keyOf, parseValue, resourceOf, valueText } from '../../../../src/engines/consul/keys.ts'

test('a key is readable, safe in a URL, and can be taken apart again, whatever the name', () => {
  expect(keyOf('app/', 'order:42@eu')).toBe('app/order:42@eu')
  expect(keyOf('app/', 'a/b c')).toBe('app/a%2Fb%20c')
  expect(['.', '..', '...', 'a.b'].map((name) => keyOf('', name))).toEqual(['%2E', '%2E%2E', '%2E%2E%2E', 'a.b'])
  assert(
    property(string({ unit: 'grapheme', minLength: 1 }), (name) => {
      const key = keyOf('app/', name)
      expect(key).toMatch(/^app\/[\x21-\x7e]+$/)
      expect(resourceOf('app/', key)).toBe(name)
    }),
  )
})

test('keys of other software are none of ours', () => {
  for (const key of ['app', 'app/', 'app/a/b', 'other/a', 'app/%zz']) expect(resourceOf('app/', key)).toBeUndefined()
})

test('a value of other software says nothing', () => {
  const value = { owner: 'me', ttlMs: 5, sinceMs: 7 }
  expect(parseValue(valueText(value))).toEqual(value)
  for (const text of ['', 'x', 'null', '[]', '{"owner":"me"}', '{"owner":5,"ttlMs":1,"sinceMs":1}'])
    expect(parseValue(text)).toBeUndefined()
})

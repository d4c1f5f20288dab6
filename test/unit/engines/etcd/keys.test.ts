import { assert, property, string } from 'fast-check'
import { expect, test } from 'vitest'
import { keysUnder, leaseIdOf, parseValue, secondsOf, valueText } from '../../../../src/engines/etcd/keys.ts'

const keys = keysUnder('app/locks/')

test('a key is readable, and can be taken apart again, whatever the names', () => {
  expect(keys.own(['order:42', 'a/b%c'], 'me@host')).toEqual([
    'app/locks/order:42/me@host',
    'app/locks/a%2Fb%25c/me@host',
  ])
  assert(
    property(string({ unit: 'grapheme', minLength: 1 }), string({ minLength: 1 }), (resource, owner) => {
      const [key] = keys.own([resource], owner)
      expect(keys.parse(key!)).toEqual({ resource, owner })
    }),
  )
})

test('a folder has the keys of its resource and of no other', () => {
  assert(
    property(string({ minLength: 1 }), string({ minLength: 1 }), (one, other) => {
      const { key, rangeEnd } = keys.folder(one)
      const inside = (text: string): boolean => {
        const bytes = Buffer.from(text)
        return bytes.compare(Buffer.from(key)) >= 0 && bytes.compare(Buffer.from(rangeEnd)) < 0
      }
      expect(inside(keys.own([one], 'me')[0]!)).toBe(true)
      expect(inside(keys.own([other], 'me')[0]!)).toBe(one === other)
      expect(inside(keys.own([`${one}/${other}`], 'me')[0]!)).toBe(false)
    }),
  )
})

test('keys of other software are none of ours', () => {
  for (const key of ['app/lock', 'app/locks/x', 'app/locks/x/y/z', 'other/x/y']) expect(keys.parse(key)).toBeUndefined()
})

test('an etcd lease’s id is positive, fits in 63 bits, and differs by owner and by ttl', () => {
  const ids = new Set<string>()
  for (let i = 0; i < 500; i++) {
    for (const seconds of [1, 30]) {
      const id = BigInt(leaseIdOf(`owner-${i}`, seconds))
      expect(id > 0n && id < 2n ** 63n).toBe(true)
      ids.add(String(id))
    }
  }
  expect(ids.size).toBe(1000)
  expect(leaseIdOf('a', 1)).toBe(leaseIdOf('a', 1))
})

test('a part of a second counts as a whole one', () => {
  expect([1, 999, 1000, 1001, 30_000].map(secondsOf)).toEqual([1, 1, 1, 2, 30])
})

test('a value of other software says nothing', () => {
  expect(parseValue(valueText({ ttlMs: 5, sinceMs: 7 }))).toEqual({ ttlMs: 5, sinceMs: 7 })
  expect(parseValue(valueText({ ttlMs: 5 }))).toEqual({ ttlMs: 5 })
  for (const text of ['', 'x', '[]', '5', '"a"', '{"ttlMs":"a"}']) expect(parseValue(text)).toEqual({})
  expect(parseValue('null')).toEqual({})
})

import { assert, boolean, property, string } from 'fast-check'
import { expect, test } from 'vitest'
import {
  keysUnder,
  leaseIdOf,
  parseValue,
  secondsOf,
  valueText,
  type KeyRange,
} from '../../../../src/engines/etcd/keys.ts'

const keys = keysUnder('app/locks/')
const names = string({ unit: 'binary-ascii', minLength: 1 })

function keyOf(resource: string, owner = 'me', shared = false): string {
  return keys.own({ resources: [resource], owner, shared })[0]!
}

function isIn({ key, rangeEnd }: KeyRange, text: string): boolean {
  const bytes = Buffer.from(text)
  return bytes.compare(Buffer.from(key)) >= 0 && bytes.compare(Buffer.from(rangeEnd)) < 0
}

test('a key is readable, and can be taken apart again, whatever the names', () => {
  const resources = ['order:42', 'a/b%c']
  expect(keys.own({ resources, owner: 'me@host' })).toEqual([
    'app/locks/order:42/me@host',
    'app/locks/a%2Fb%25c/me@host',
  ])
  expect(keys.own({ resources, owner: 'me@host', shared: true })).toEqual([
    'app/locks/order:42/!shared/me@host',
    'app/locks/a%2Fb%25c/!shared/me@host',
  ])
  assert(
    property(string({ unit: 'grapheme', minLength: 1 }), names, boolean(), (resource, owner, shared) => {
      expect(keys.parse(keyOf(resource, owner, shared))).toEqual({ resource, owner, shared })
    }),
  )
})

test('a folder has the keys of its resource and of no other', () => {
  assert(
    property(string({ minLength: 1 }), string({ minLength: 1 }), (one, other) => {
      const folder = keys.folder(one)
      expect(isIn(folder, keyOf(one))).toBe(true)
      expect(isIn(folder, keyOf(other))).toBe(one === other)
      expect(isIn(folder, keyOf(`${one}/${other}`))).toBe(false)
    }),
  )
})

test('one range has the exclusive keys of a resource and none of the shared ones, whatever the owner', () => {
  const owners = [' me', '!me', '!shared', '!shared/me', '!shared0', '/me', '%me', '-', '694d77cc5b6ab0e1', 'é']
  const [folder, exclusive] = [keys.folder('a'), keys.exclusive('a')]
  const isRight = (owner: string): void => {
    for (const shared of [false, true]) {
      expect(isIn(folder, keyOf('a', owner, shared))).toBe(true)
      expect(isIn(exclusive, keyOf('a', owner, shared))).toBe(!shared)
    }
  }
  for (const owner of owners) isRight(owner)
  assert(property(names, isRight))
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

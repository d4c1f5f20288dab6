import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  compareSequence,
  decodeName,
  encodeName,
  firstPlace,
  holdersAmong,
  leftName,
  placePrefix,
  readLeft,
  readPlace,
  type QueuePlace,
} from '../../../../src/engines/zookeeper/names.ts'

/** Names as the core lets them through: well-formed, not empty. */
const name = fc.string({ unit: 'grapheme', minLength: 1 }).filter((text) => !/\p{Surrogate}/u.test(text))

/** Readers and writers, one letter each. */
function places(kinds: string): QueuePlace[] {
  return kinds.split('').map((kind, sequence) => ({ name: kind, owner: kind, shared: kind === 'r', sequence }))
}

describe('a resource as the name of a folder', () => {
  test('is read back, whatever it is, and is one that ZooKeeper takes', () => {
    fc.assert(
      fc.property(name, (text) => {
        const encoded = encodeName(text)
        expect(decodeName(encoded)).toBe(text)
        expect(encoded).toMatch(/^[\w\-.!~*'()%:@]+$/)
        expect(['.', '..']).not.toContain(encoded)
      }),
    )
  })

  test('is easy to read where it is an ordinary one', () => {
    expect(encodeName('order:42')).toBe('order:42')
    expect(encodeName('a/b c')).toBe('a%2Fb%20c')
    expect(encodeName('..')).toBe('%2E%2E')
  })

  test.each(['a%2', 'a b', '%2e', 'é'])('%j is none of ours', (other) => {
    expect(decodeName(other)).toBeUndefined()
  })
})

describe('a place in the queue', () => {
  test('tells its owner, whether it is shared, and its number', () => {
    fc.assert(
      fc.property(name, fc.boolean(), fc.integer({ min: 0, max: 2 ** 31 - 1 }), (owner, shared, sequence) => {
        const znode = `${placePrefix({ owner, shared })}${String(sequence).padStart(10, '0')}`
        expect(readPlace(znode)).toEqual({ name: znode, owner, shared, sequence })
      }),
    )
    expect(readPlace(firstPlace({ owner: 'me@here:1' }))).toMatchObject({ owner: 'me@here:1', sequence: 0 })
  })

  test('may be one of other software', () => {
    expect(readPlace('lock-0000000007')).toMatchObject({ owner: 'lock-0000000007', shared: false, sequence: 7 })
    expect(readPlace('read-0000000007')).toBeUndefined()
    expect(readPlace('leader')).toBeUndefined()
  })

  test('holds the resource if it is the first, or if only shared ones are before it and it is shared, too', () => {
    expect(['', 'w', 'wr', 'wrr', 'r', 'rr', 'rrw', 'rwr'].map((kinds) => holdersAmong(places(kinds)))).toEqual([
      0, 1, 1, 1, 1, 2, 2, 1,
    ])
  })

  test('comes before those that were made later, also when the number turns over', () => {
    expect(readPlace('lock--2147483648')?.sequence).toBe(-(2 ** 31))
    expect(readPlace('lock--000000005')?.sequence).toBe(-5)
    expect(compareSequence(1, 2)).toBeLessThan(0)
    expect(compareSequence(2 ** 31 - 1, -(2 ** 31))).toBeLessThan(0)
    expect(compareSequence(-(2 ** 31), 2 ** 31 - 1)).toBeGreaterThan(0)
  })

  test('is not what a lease leaves that is to run out', () => {
    expect(readLeft(leftName('me@here'))).toBe('me@here')
    expect(readPlace(leftName('me@here'))).toBeUndefined()
    expect(readLeft(firstPlace({ owner: 'me' }))).toBeUndefined()
  })
})

import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { hashTag, slotOf } from '../../../../src/engines/redis/slot.ts'
import { assertOneSlot, resourceKeys, resourceOfFence } from '../../../../src/engines/redis/keys.ts'

/** Mostly braces and separators, where the rules are; any other character now and then. */
const text = fc.string({
  unit: fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom('{', '}', ':', '#', 'a', 'b') },
    fc.string({ unit: 'grapheme', minLength: 1, maxLength: 1 }),
  ),
})
const resource = text.filter((name) => name !== '')

/** CRC16/XMODEM by its definition, a bit at a time. */
function crc16(bytes: Uint8Array): number {
  let crc = 0
  for (const byte of bytes) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff
  }
  return crc
}

describe('the hash slot of a key', () => {
  test('agrees with the published vector of CRC16: 123456789 is 0x31C3', () => {
    expect(slotOf('123456789')).toBe(0x31c3)
    expect(crc16(Buffer.from('123456789'))).toBe(0x31c3)
  })

  test.each([
    ['somekey', 11_058],
    ['foo{hash_tag}', 2515],
    ['bar{hash_tag}', 2515],
    ['hash_tag', 2515],
    ['foo', 12_182],
    ['bar', 5061],
    ['hello', 866],
    ['{user1000}.following', 3443],
    ['{user1000}.followers', 3443],
    ['', 0],
  ])('%s is %d, as a server computes it', (key, slot) => {
    expect(slotOf(key)).toBe(slot)
  })

  test('of any key without a tag is its CRC16 modulo 16384', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme' }).filter((key) => !key.includes('{')),
        (key) => {
          expect(slotOf(key)).toBe(crc16(Buffer.from(key)) % 16_384)
        },
      ),
    )
  })

  test.each([
    ['{a}b', 'a'],
    ['x{a}b{c}', 'a'],
    ['{{a}}', '{a'],
    ['{a', undefined],
    ['a}', undefined],
    ['}a{', undefined],
    ['{}a', undefined],
    ['{}{a}', undefined],
    ['', undefined],
  ])(
    'of %s hashes the tag %s: what stands between the first brace and the next closing one, unless empty',
    (key, tag) => {
      expect(hashTag(key)).toBe(tag)
      expect(slotOf(key)).toBe(crc16(Buffer.from(tag ?? key)) % 16_384)
    },
  )
})

describe('the keys of a resource', () => {
  test('lock, fence and channel share a slot, for any resource and prefix', () => {
    fc.assert(
      fc.property(text, resource, (prefix, resource) => {
        const { lock, fence, freed } = resourceKeys(prefix, resource)
        expect([slotOf(fence), slotOf(freed)]).toEqual([slotOf(lock), slotOf(lock)])
      }),
      { numRuns: 500 },
    )
  })

  test('the lock key is the plain resource behind the prefix: other Redlock implementations see it', () => {
    fc.assert(
      fc.property(text, resource, (prefix, resource) => {
        expect(resourceKeys(prefix, resource).lock).toBe(prefix + resource)
      }),
    )
  })

  test('the resource can be told from its fence key', () => {
    fc.assert(
      fc.property(text, resource, (prefix, resource) => {
        expect(resourceOfFence(prefix, resourceKeys(prefix, resource).fence)).toBe(resource)
      }),
      { numRuns: 500 },
    )
  })

  test('two resources never share a fence key or a channel, and neither is a lock key', () => {
    fc.assert(
      fc.property(text, resource, resource, (prefix, one, other) => {
        fc.pre(one !== other)
        const [a, b] = [resourceKeys(prefix, one), resourceKeys(prefix, other)]
        expect(new Set([a.lock, a.fence, a.freed, b.lock, b.fence, b.freed]).size).toBe(6)
      }),
      { numRuns: 500 },
    )
  })

  test('a fence key of another prefix has no resource of ours', () => {
    expect(resourceOfFence('app:', resourceKeys('other:', 'a').fence)).toBeUndefined()
    expect(resourceOfFence('app:', 'ringfence:fence:?')).toBeUndefined()
  })

  test('are the same in every process: the number in front of a stray brace does not depend on what came before', () => {
    const before = resourceKeys('', 'a}b').fence
    for (let i = 0; i < 200; i++) resourceKeys('', `${i}}`)
    expect(resourceKeys('', 'a}b').fence).toBe(before)
    const tag = Number(/#\{(\d+)\}/.exec(before)![1])
    const slot = slotOf('a}b')
    expect(slotOf(String(tag))).toBe(slot)
    const smaller = Array.from({ length: tag }, (_, number) => slotOf(String(number)))
    expect(smaller).not.toContain(slot)
  })
})

describe('several resources on a Cluster', () => {
  test('that share a slot are accepted', () => {
    const resources = ['{order:42}:a', '{order:42}:b']
    expect(() => assertOneSlot(pairs(resources), resources)).not.toThrow()
  })

  test.each([[['order:42', 'order:43']], [['a', 'b', 'c']], [['{a}x', 'b}']], [['{{', '}}']]])(
    '%j that do not are told of a hash tag that would do it',
    (resources) => {
      const message = messageOf(() => assertOneSlot(pairs(resources), resources))
      expect(message).toMatch(/^resource: on a Redis Cluster several resources must share a hash slot/)
      const advised = [...message.split('e.g. ')[1]!.matchAll(/'([^']*)'/g)].map(([, name]) => name!)
      expect(advised).toHaveLength(resources.length)
      expect(() => assertOneSlot(pairs(advised), advised)).not.toThrow()
    },
  )
})

function messageOf(call: () => void): string {
  try {
    call()
  } catch (error) {
    return (error as Error).message
  }
  return 'nothing was thrown'
}

function pairs(resources: readonly string[]): string[] {
  return resources.flatMap((resource) => {
    const { lock, fence } = resourceKeys('', resource)
    return [lock, fence]
  })
}

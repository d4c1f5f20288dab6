import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { sha1, sha1InScript } from '../../src/engines/redis/sha1.ts'
import { byteLength, placeName } from '../../src/platform.ts'

test('our SHA-1 is the one of Node, at every length of a last block and beyond ASCII', () => {
  const texts = Array.from({ length: 130 }, (_, length) => 'x'.repeat(length))
  for (const text of [...texts, 'return 1', 'schlüssel …', '🔒'.repeat(40)]) {
    const expected = createHash('sha1').update(text).digest('hex')
    expect(sha1InScript(text)).toBe(expected)
    expect(sha1(text)).toBe(expected)
  }
})

test('in Node the place is host and process, and lengths are those of UTF-8', () => {
  expect(placeName()).toMatch(new RegExp(`.:${process.pid}$`))
  expect(byteLength('ü🔒')).toBe(6)
})

import { expect, test } from 'vitest'
import { given } from '../../src/arguments.ts'
import { memory } from '../../src/engines/memory.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { createLocks } from '../../src/locks.ts'
import { bench } from './bench.ts'

test('given leaves out what is undefined, and nothing else', () => {
  const fields = { absent: undefined, nothing: null, zero: 0, no: false, empty: '' }
  expect(Object.keys(given(fields))).toEqual(['nothing', 'zero', 'no', 'empty'])
})

test('an AbortController where its signal is meant is told so', async () => {
  const { locks } = bench()
  const signal = new AbortController() as never
  const message = 'signal: expected an AbortSignal, got its AbortController; write { signal: controller.signal }'
  await expect(locks.acquire('a', { signal })).rejects.toThrow(message)
  await expect((await locks.acquire('a')).proved({ signal })).rejects.toThrow(message)
})

test('createLocks of what makes an engine, or of locks, says what to write', () => {
  expect(() => createLocks(redis as never)).toThrow(
    /got a function; if it makes an engine, call it, as in createLocks\(redis\(client\)\)$/,
  )
  expect(() => createLocks(createLocks(memory()) as never)).toThrow(/got locks, which have an engine already; use them/)
})

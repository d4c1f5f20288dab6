import { expect, test } from 'vitest'
import { connected } from '../../../../src/cli/engines/redis.ts'
import { ManualClock } from '../../../../harness/manual-clock.ts'

const never = new Promise<never>(() => undefined)
const ready = Promise.resolve()

/** After how many milliseconds it no longer waits, of at most this many. */
async function waitedFor(all: readonly Promise<unknown>[], mostMs = 6000): Promise<number> {
  const clock = new ManualClock()
  const beganMs = clock.monotonicMs()
  let overMs: number | undefined
  void connected(all, clock).then(() => (overMs = clock.monotonicMs()))
  await clock.advance(mostMs)
  expect(clock.timers).toBe(0)
  return overMs! - beganMs
}

test('a majority is enough, and so is that all have failed', async () => {
  expect(await waitedFor([ready])).toBe(0)
  expect(await waitedFor([ready, ready, never])).toBe(0)
  expect(await waitedFor([1, 2, 3].map(() => Promise.reject(new Error('refused'))))).toBe(0)
})

test('where one is connected, the others have a second more; where none is, five', async () => {
  expect(await waitedFor([ready, ready, never, never, never])).toBe(1000)
  expect(await waitedFor([never, never, never])).toBe(5000)
  expect(await waitedFor([never])).toBe(5000)
})

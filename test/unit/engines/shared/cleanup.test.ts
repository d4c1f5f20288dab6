import { expect, test } from 'vitest'
import { Cleanup } from '../../../../src/engines/shared/cleanup.ts'
import { ManualClock, settled } from '../../../../harness/manual-clock.ts'

function failing(times: number): { release: () => Promise<void>; tries: () => number } {
  let tries = 0
  const release = async (): Promise<void> => {
    if (++tries <= times) throw new Error('away')
  }
  return { release, tries: () => tries }
}

test('a release that works is tried once', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(0)
  new Cleanup(clock).later(release, 10_000)
  await clock.advance(60_000)
  expect(tries()).toBe(1)
  expect(clock.timers).toBe(0)
})

test('one that fails is tried again with growing pauses, until it works', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(3)
  new Cleanup(clock).later(release, 10_000)
  await clock.advance(99)
  expect(tries()).toBe(1)
  await clock.advance(1)
  expect(tries()).toBe(2)
  await clock.advance(200 + 400)
  expect(tries()).toBe(4)
  await clock.advance(60_000)
  expect(tries()).toBe(4)
})

test('it is given up when the lease is over by itself', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(Infinity)
  new Cleanup(clock).later(release, 1000)
  await clock.advance(60_000)
  expect(tries()).toBe(5)
  expect(clock.timers).toBe(0)
})

test('closing makes one more try at once, and waits for it', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(Infinity)
  const cleanup = new Cleanup(clock)
  cleanup.later(release, 60_000)
  await settled()
  expect(tries()).toBe(1)
  await cleanup.close()
  expect(tries()).toBe(2)
  expect(clock.timers).toBe(0)
})

test('a server that stays away does not pile them up without end', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(Infinity)
  const cleanup = new Cleanup(clock)
  for (let i = 0; i < 1000; i++) cleanup.later(release, 60_000)
  expect(tries()).toBe(100)
  await cleanup.close()
})

test('a caller who waits for the first try does not wait for the next one', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(1)
  await new Cleanup(clock).now(release, 60_000)
  expect(tries()).toBe(1)
  await clock.advance(100)
  expect(tries()).toBe(2)
  expect(clock.timers).toBe(0)
})

test('an error that no later try cures ends it', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(Infinity)
  await new Cleanup(clock, () => true).now(release, 60_000)
  await clock.advance(60_000)
  expect(tries()).toBe(1)
})

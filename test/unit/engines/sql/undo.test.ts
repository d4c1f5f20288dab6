import { expect, test } from 'vitest'
import { Undoing } from '../../../../src/engines/sql/undo.ts'
import { ManualClock, settled } from '../../../support/manual-clock.ts'

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
  new Undoing(clock).start(10_000, release)
  await clock.advance(60_000)
  expect(tries()).toBe(1)
  expect(clock.timers).toBe(0)
})

test('one that fails is tried again with growing pauses, until it works', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(3)
  new Undoing(clock).start(10_000, release)
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
  new Undoing(clock).start(1000, release)
  await clock.advance(60_000)
  expect(tries()).toBe(5)
  expect(clock.timers).toBe(0)
})

test('closing makes one more try at once, and waits for it', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(Infinity)
  const undoing = new Undoing(clock)
  undoing.start(60_000, release)
  await settled()
  expect(tries()).toBe(1)
  await undoing.close()
  expect(tries()).toBe(2)
  expect(clock.timers).toBe(0)
})

test('a server that stays away does not pile them up without end', async () => {
  const clock = new ManualClock()
  const { release, tries } = failing(Infinity)
  const undoing = new Undoing(clock)
  for (let i = 0; i < 1000; i++) undoing.start(60_000, release)
  expect(tries()).toBe(100)
  await undoing.close()
})

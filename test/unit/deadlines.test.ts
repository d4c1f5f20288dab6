import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Deadlines } from '../../src/deadlines.ts'
import { ManualClock } from '../../harness/manual-clock.ts'

describe('deadlines', () => {
  test('expire at their time, in order, and not when cancelled before', async () => {
    const clock = new ManualClock(0)
    const deadlines = new Deadlines(clock)
    const expired: [string, number][] = []
    const note = (name: string) => () => void expired.push([name, clock.monotonicMs()])
    deadlines.start(100, note('a'))
    await clock.advance(10)
    const met = deadlines.start(100, note('met'))
    deadlines.start(50, note('short'))
    await clock.advance(20)
    deadlines.start(100, note('b'))
    met.cancel()
    await clock.advance(1000)
    expect(expired).toEqual([
      ['short', 60],
      ['a', 100],
      ['b', 130],
    ])
    expect(clock.timers).toBe(0)
  })

  test('of one delay share one timer, however many there are', () => {
    const clock = new ManualClock()
    const deadlines = new Deadlines(clock)
    for (let i = 0; i < 1000; i++) deadlines.start(100, () => undefined)
    expect(clock.timers).toBe(1)
  })

  test('that are nearly always met cost no timer each', async () => {
    const clock = new ManualClock()
    const deadlines = new Deadlines(clock)
    for (let i = 0; i < 500; i++) {
      deadlines.start(100, () => undefined).cancel()
      await clock.advance(1)
      expect(clock.timers).toBeLessThanOrEqual(1)
    }
    await clock.advance(200)
    expect(clock.timers).toBe(0)
  })

  test('started by one that has just expired do not multiply the timers', async () => {
    const clock = new ManualClock()
    const deadlines = new Deadlines(clock)
    let expired = 0
    const again = (): void => {
      expired++
      deadlines.start(100, again)
    }
    for (let i = 0; i < 5; i++) {
      deadlines.start(100, again)
      await clock.advance(7)
    }
    await clock.advance(2000)
    expect(expired).toBeGreaterThan(90)
    expect(clock.timers).toBe(1)
  })

  test('of many different delays leave no crowd of timers behind once they are met', async () => {
    const clock = new ManualClock()
    const deadlines = new Deadlines(clock)
    for (let i = 0; i < 5000; i++) deadlines.start(3_600_000 + i, () => undefined).cancel()
    expect(clock.timers).toBeLessThan(500)
  })

  test('that are closed expire at once, and leave no timer', async () => {
    const clock = new ManualClock()
    const deadlines = new Deadlines(clock)
    let expired = 0
    deadlines.start(10, () => expired++)
    deadlines.start(20, () => expired++)
    deadlines.start(30, () => expired++).cancel()
    deadlines.close()
    expect(expired).toBe(2)
    expect(clock.timers).toBe(0)
    await clock.advance(100)
    expect(expired).toBe(2)
  })

  test('expire once each, never early and at most a grain late, whatever is started and cancelled when', async () => {
    const entry = fc.record({
      atMs: fc.nat(200),
      delayMs: fc.constantFrom(5, 50, 51.5, 100),
      metMs: fc.option(fc.nat(120)),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(entry, { maxLength: 25 }), async (entries) => {
        const clock = new ManualClock(0)
        const deadlines = new Deadlines(clock)
        const expired = entries.map((): number[] => [])
        for (const [index, { atMs, delayMs, metMs }] of entries.entries()) {
          clock.timer(() => {
            const deadline = deadlines.start(delayMs, () => expired[index]!.push(clock.monotonicMs()))
            if (metMs !== null) clock.timer(() => deadline.cancel(), metMs)
          }, atMs)
        }
        await clock.advance(1000)
        for (const [index, { atMs, delayMs, metMs }] of entries.entries()) {
          const due = atMs + delayMs
          // Met and due in the same moment: either may come first.
          const times = expired[index]!.filter((time) => metMs === null || time < atMs + metMs)
          expect(expired[index]!.length).toBeLessThanOrEqual(1)
          expect(times).toHaveLength(metMs === null || metMs > Math.ceil(delayMs) + 1 ? 1 : times.length)
          for (const time of expired[index]!) {
            expect(time).toBeGreaterThanOrEqual(due)
            expect(time).toBeLessThanOrEqual(Math.ceil(due) + 1)
            expect(metMs ?? Infinity).toBeGreaterThanOrEqual(delayMs)
          }
        }
        expect(clock.timers).toBe(0)
      }),
      { numRuns: 50 },
    )
  })
})

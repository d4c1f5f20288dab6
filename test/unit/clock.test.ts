import * as fc from 'fast-check'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { elapsedMs, instant, sleep, systemClock } from '../../src/clock.ts'
import { ManualClock } from '../../harness/manual-clock.ts'

describe('elapsed time', () => {
  test('is the greater of the monotonic and the wall-clock difference, whatever either clock does', () => {
    const move = fc.record({ monotonicMs: fc.nat(100_000), wallMs: fc.integer({ min: -100_000, max: 100_000 }) })
    fc.assert(
      fc.property(move, ({ monotonicMs, wallMs }) => {
        const clock = new ManualClock()
        const since = instant(clock)
        clock.passMonotonic(monotonicMs)
        clock.jumpWall(wallMs)
        expect(elapsedMs(clock, since)).toBe(Math.max(monotonicMs, wallMs))
      }),
    )
  })
})

describe('sleep', () => {
  test('resolves after its time, not before', async () => {
    const clock = new ManualClock()
    let awake = false
    const asleep = sleep(clock, 100).then(() => (awake = true))
    await clock.advance(99)
    expect(awake).toBe(false)
    await clock.advance(1)
    expect(await asleep).toBe(true)
  })

  test('resolves at once when its signal aborts, and leaves no timer and no listener', async () => {
    const clock = new ManualClock()
    const controller = new AbortController()
    const remove = vi.spyOn(controller.signal, 'removeEventListener')
    const asleep = sleep(clock, 100, controller.signal)
    expect(clock.timers).toBe(1)
    controller.abort()
    await asleep
    expect(clock.timers).toBe(0)
    expect(remove).toHaveBeenCalledTimes(1)
  })

  test('does not begin when its signal has aborted already', async () => {
    const clock = new ManualClock()
    await sleep(clock, 100, AbortSignal.abort())
    expect(clock.timers).toBe(0)
  })
})

describe('the system clock', () => {
  test('shows the time of the process and of the day', () => {
    const before = performance.now()
    const monotonicMs = systemClock.monotonicMs()
    expect(monotonicMs).toBeGreaterThanOrEqual(before)
    expect(monotonicMs).toBeLessThanOrEqual(performance.now())
    const day = Date.now()
    expect(systemClock.wallMs()).toBeGreaterThanOrEqual(day)
  })

  test('calls back once, and not at all when cancelled', async () => {
    let calls = 0
    const cancelled = systemClock.timer(() => calls++, 5)
    cancelled.cancel()
    await new Promise<void>((resolve) => {
      systemClock.timer(() => {
        calls += 10
        resolve()
      }, 10)
    })
    expect(calls).toBe(10)
  })

  test('a timer of more than 24.8 days, the longest that setTimeout takes, does not fire early', () => {
    vi.useFakeTimers()
    onTestFinished(() => void vi.useRealTimers())
    const dayMs = 86_400_000
    let calls = 0
    systemClock.timer(() => calls++, 30 * dayMs)
    vi.advanceTimersByTime(29.9 * dayMs)
    expect(calls).toBe(0)
    vi.advanceTimersByTime(0.1 * dayMs)
    expect(calls).toBe(1)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('a long timer can be cancelled at any time', () => {
    vi.useFakeTimers()
    onTestFinished(() => void vi.useRealTimers())
    const dayMs = 86_400_000
    let calls = 0
    const timer = systemClock.timer(() => calls++, 60 * dayMs)
    vi.advanceTimersByTime(30 * dayMs)
    timer.cancel()
    vi.advanceTimersByTime(60 * dayMs)
    expect(calls).toBe(0)
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe('the manual clock of these tests', () => {
  test('fires timers in the order in which they are due, each at its time', async () => {
    const clock = new ManualClock(0)
    const fired: [string, number][] = []
    const note = (name: string) => () => void fired.push([name, clock.monotonicMs()])
    clock.timer(note('late'), 30)
    clock.timer(() => {
      note('early')()
      clock.timer(note('nested'), 5)
    }, 10)
    await clock.advance(30)
    expect(fired).toEqual([
      ['early', 10],
      ['nested', 15],
      ['late', 30],
    ])
  })

  test('fires timers late when the process stalls', async () => {
    const clock = new ManualClock(0)
    const fired: number[] = []
    clock.timer(() => void fired.push(clock.monotonicMs()), 10)
    clock.timer(() => void fired.push(clock.monotonicMs()), 20)
    await clock.stall(100)
    expect(fired).toEqual([100, 100])
  })
})

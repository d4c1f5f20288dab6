import { describe, expect, test } from 'vitest'
import type { Instant } from '../../../../src/clock.ts'
import { Touches } from '../../../../src/engines/zookeeper/touches.ts'

const SESSION_MS = 12_000

function at(monotonicMs: number, wallMs = monotonicMs): Instant {
  return { monotonicMs, wallMs }
}

function touches(...answeredMs: readonly number[]): Touches {
  const touches = new Touches(at(0))
  for (const ms of answeredMs) touches.answered(at(ms), SESSION_MS)
  return touches
}

describe('how long the servers surely keep a session', () => {
  test('from the connection on: the leader itself was asked', () => {
    expect(touches().cover(at(6000), 6000, SESSION_MS)).toBe(true)
    expect(touches().cover(at(6001), 6000, SESSION_MS)).toBe(false)
  })

  test('not from a request that the leader may not know of yet', () => {
    // Answered a moment ago: a follower that dies now has not passed it on.
    expect(touches(9000).cover(at(9001), 6000, SESSION_MS)).toBe(false)
    // A quarter of the session ago: passed on, since that is half a tick or more.
    expect(touches(9000).cover(at(12_000), 6000, SESSION_MS)).toBe(true)
    expect(touches(9000).cover(at(15_000), 6000, SESSION_MS)).toBe(true)
    expect(touches(9000).cover(at(15_001), 6000, SESSION_MS)).toBe(false)
  })

  test('with a sign of life every sixth of it, always for half of it', () => {
    const beats: number[] = []
    for (let ms = 2000; ms <= 100_000; ms += 2000) beats.push(ms)
    for (let ms = 20_000; ms <= 100_000; ms += 333) {
      const heard = touches(...beats.filter((beat) => beat <= ms))
      expect(heard.cover(at(ms), SESSION_MS / 2, SESSION_MS)).toBe(true)
    }
  })

  test('from a reconnection on', () => {
    const heard = touches(1000)
    heard.reached(at(50_000))
    expect(heard.cover(at(55_000), 6000, SESSION_MS)).toBe(true)
  })

  test('the pessimistic clock counts: a machine that slept, a clock that was set back', () => {
    // Asleep for a minute: the monotonic clock stood still.
    expect(touches(1000).cover(at(5000, 65_000), 6000, SESSION_MS)).toBe(false)
    // Set back: by the wall clock the request was just now.
    const heard = new Touches(at(0, 0))
    heard.answered(at(20_000, 20_000), SESSION_MS)
    expect(heard.cover(at(24_000, 20_100), 6000, SESSION_MS)).toBe(false)
  })

  test('many requests are remembered by a few', () => {
    const heard = touches(...Array.from({ length: 100_000 }, (_, ms) => ms))
    expect(heard.size).toBeLessThan(30)
    expect(heard.cover(at(100_000), 6000, SESSION_MS)).toBe(true)
  })
})

import { expect, test } from 'vitest'
import { ManualClock } from '../../../../harness/manual-clock.ts'
import { checkClockSpeed, measureClock, offsetFound } from '../../../../src/engines/shared/clock-check.ts'
import { findings } from '../../../../src/engines/shared/findings.ts'

const plan = { ttlMs: 10_000, driftMs: 100 }

/** A server whose clock shows this at that moment of ours, and that answers after 2 ms. */
async function measured(serverMs: (ourMs: number) => number | undefined) {
  const clock = new ManualClock()
  const read = async (): Promise<number | undefined> => {
    clock.pass(1)
    const ms = serverMs(clock.monotonicMs())
    clock.pass(1)
    return ms
  }
  const readings = measureClock(read, { ...plan, clock })
  await clock.advance(5000)
  return readings
}

function speed(clock: NonNullable<Awaited<ReturnType<typeof measured>>['measured']>) {
  return checkClockSpeed(findings('x'), 'clock-speed', clock, { ...plan, clock: new ManualClock() })
}

test.each([
  ['as fast as ours', 1, 'ok', 'as fast as'],
  ['a tenth faster', 1.1, 'critical', 'faster than'],
  ['a tenth slower', 0.9, 'warning', 'slower than'],
])('a clock that runs %s', async (_speed, rate, severity, words) => {
  const { measured: clock } = await measured((ms) => ms * rate)
  expect(speed(clock!)).toMatchObject({ severity, found: expect.stringContaining(words) })
})

test('a clock that jumps while it is watched is critical', async () => {
  let readings = 0
  const { measured: clock } = await measured((ms) => ms + (readings++ > 3 ? 5000 : 0))
  expect(speed(clock!)).toMatchObject({ severity: 'critical', found: expect.stringContaining('jumped by at least') })
})

test('a server that does not tell its time is timed, and not compared', async () => {
  const { measured: clock, tripsMs } = await measured(() => undefined)
  expect(clock).toBeUndefined()
  expect(Math.min(...tripsMs)).toBeGreaterThanOrEqual(2)
})

test('an offset is given with its bounds, or as what could not be resolved', () => {
  expect(offsetFound('Its clock', { low: 4999, high: 5001 }, 'this process')).toBe(
    'Its clock is 5000 ms (±1.0 ms) ahead of that of this process.',
  )
  expect(offsetFound('Its clock', { low: -1, high: 2 }, 'b')).toBe(
    'Its clock and that of b differ by no more than 2.0 ms, all that could be resolved.',
  )
})

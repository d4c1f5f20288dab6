import { expect, test } from 'vitest'
import { checkRoundTrip } from '../../../../src/engines/http/doctor.ts'
import { ManualClock } from '../../../support/manual-clock.ts'

test.each([
  ['short', 200, 'ok'],
  ['more than a quarter of the time-out', 300, 'warning'],
  ['more than half of the time-out', 600, 'critical'],
])('round trips that are %s (%d of 1000 ms)', async (_length, tripMs, severity) => {
  const clock = new ManualClock()
  const trip = async (): Promise<void> => clock.pass(tripMs)
  expect(await checkRoundTrip('x/round-trip', trip, { clock, ttlMs: 10_000, timeoutMs: 1000 })).toMatchObject({
    id: 'x/round-trip',
    severity,
    found: expect.stringContaining(`median ${tripMs} ms, longest ${tripMs} ms`),
  })
})

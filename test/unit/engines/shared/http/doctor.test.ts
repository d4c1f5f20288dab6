import { expect, test } from 'vitest'
import { findings } from '../../../../../src/engines/shared/findings.ts'
import { checkTrips } from '../../../../../src/engines/shared/http/doctor.ts'
import { ManualClock } from '../../../../../harness/manual-clock.ts'

test.each([
  ['short', 200, 'ok'],
  ['more than a quarter of the time-out', 300, 'warning'],
  ['more than half of the time-out', 600, 'critical'],
])('round trips that are %s (%d of 1000 ms)', async (_length, tripMs, severity) => {
  const clock = new ManualClock()
  const trip = async (): Promise<void> => clock.pass(tripMs)
  expect(await checkTrips(findings('x'), trip, { clock, ttlMs: 10_000, timeoutMs: 1000 })).toMatchObject({
    id: 'x/round-trip',
    severity,
    found: expect.stringContaining(`takes ${tripMs} ms (median); the longest of 7 took ${tripMs} ms`),
  })
})

import { expect, test } from 'vitest'
import { ManualClock } from '../../../../harness/manual-clock.ts'
import { findings } from '../../../../src/engines/shared/findings.ts'
import { checkRoundTrip, timeTrips } from '../../../../src/engines/shared/round-trip.ts'

const limits = { ttlMs: 10_000, slowMs: 250, meaning: 'Leases are lost.', ttlPerTrip: 24, remedy: 'a nearer server' }

test.each([
  ['short', 200, 'ok'],
  ['slow', 300, 'warning'],
  ['too slow', 600, 'critical'],
])('round trips that are %s (%d ms)', async (_length, tripMs, severity) => {
  const clock = new ManualClock()
  const tripsMs = await timeTrips(clock, async () => clock.pass(tripMs))
  expect(checkRoundTrip(findings('x'), tripsMs, { ...limits, tooSlowMs: 500 })).toMatchObject({
    id: 'x/round-trip',
    severity,
    found: `An answer takes ${tripMs} ms (median); the longest of 7 took ${tripMs} ms.`,
  })
})

test('one slow trip of many is a warning, and says which ttl would bear it', () => {
  expect(checkRoundTrip(findings('x'), [1, 1, 900, 1], limits)).toMatchObject({
    severity: 'warning',
    remedy: 'Take a ttl of at least 21600 ms, or a nearer server.',
  })
})

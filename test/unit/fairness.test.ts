import { expect, test } from 'vitest'
import { ManualClock } from '../../harness/manual-clock.ts'
import { Fairness } from '../../src/fairness.ts'
import { systemRandom } from '../../src/random.ts'

test('turns are remembered for the latest resources only, however many there were', () => {
  const fairness = new Fairness(new ManualClock(), systemRandom)
  for (let index = 0; index < 5000; index++) fairness.released([`order:${index}`, `stock:${index}`], 3, 1)
  expect(fairness.size).toBe(1000)
  expect(fairness.heardRelease(['order:0'])).toBe(0)
  expect(fairness.heardRelease(['order:4999'])).toBeGreaterThan(0)
  // One that has its turn again is among the latest.
  fairness.released(['order:4600'], 3, 1)
  for (let index = 0; index < 999; index++) fairness.released([`later:${index}`], 3, 1)
  expect(fairness.heardRelease(['order:4600'])).toBeGreaterThan(0)
  fairness.released(['last'], 3, 1)
  expect(fairness.heardRelease(['order:4600'])).toBe(0)
})

import { expect, test } from 'vitest'
import { runSeeds } from '../../sim/batch.ts'

/** A thousand seeds in four parts, so that two files of them do the two thousand of a test run. */
export function thousandSeeds(first: number): void {
  const PART = 250
  for (let from = first; from < first + 4 * PART; from += PART) {
    test(`seeds ${from} to ${from + PART - 1}: no promise is broken`, { timeout: 300_000 }, async () => {
      const limit = Error.stackTraceLimit
      // Errors are part of nearly every run, and their stacks cost more than the rest.
      Error.stackTraceLimit = 0
      const totals = await runSeeds(from, PART)
      Error.stackTraceLimit = limit
      expect(totals.failedSeeds, 'look at one with: npm run sim -- --seed N').toEqual([])
      expect(totals.seeds).toBe(PART)
      // A simulation in which nothing happens proves nothing.
      expect(totals.sections).toBeGreaterThan(10 * PART)
      expect(totals.withDriver).toBeGreaterThan(PART / 50)
      expect(totals.shared).toBeGreaterThan(2 * PART)
      expect(Object.values(totals.kinds).every((count) => count > PART / 10)).toBe(true)
      expect(Object.keys(totals.faults).length).toBeGreaterThan(12)
      expect(totals.verdicts['exclusion']!.true).toBeGreaterThan(0.9 * PART)
    })
  }
}

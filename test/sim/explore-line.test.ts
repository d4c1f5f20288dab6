import { describe, expect, test } from 'vitest'
import { exploreLine, HAND_OVER_LINES, LINES, SHARED_LINES, WRONG_LINES } from '../../sim/explore/line/catalogue.ts'

const small = Object.entries({ ...LINES, ...HAND_OVER_LINES, ...SHARED_LINES }).filter(
  ([, { size }]) => size === 'small',
)

describe('the line on the servers, by its own scripts, in every order of events', () => {
  test.each(small)('is safe, in order, and never stands still: %s', { timeout: 300_000 }, (_name, configuration) => {
    const found = exploreLine(configuration)
    expect(found).toMatchObject({ verdict: 'holds', trail: [], why: undefined })
    expect(found.states).toBeGreaterThan(1000)
    // Two states taken for one would be a hole in the exploration.
    expect(found.doubt).toBeLessThan(1e-6)
  })

  test.each(Object.entries(WRONG_LINES))(
    'is broken by a client that %s',
    { timeout: 300_000 },
    (_name, configuration) => {
      const found = exploreLine(configuration)
      expect(found.verdict).toBe('broken')
      expect(found.trail.length).toBeGreaterThan(2)
    },
  )
})

import { describe, expect, test } from 'vitest'
import { ADMISSIONS, exploreAdmission, WRONG_ADMISSIONS } from '../../sim/explore/admission.ts'

describe('letting a node in, by the shipped code, in every order of events', () => {
  test.each(Object.entries(ADMISSIONS))('%s', { timeout: 300_000 }, async (_name, plan) => {
    const found = await exploreAdmission(plan)
    expect(found).toMatchObject({ broken: undefined })
    expect(found.states).toBeGreaterThan(500)
    // It did vote, and it did refuse.
    expect(found.votes).toBeGreaterThan(0)
    expect(found.refusals).toBeGreaterThan(0)
  })

  test.each(Object.entries(WRONG_ADMISSIONS))('is broken by %s', { timeout: 300_000 }, async (_name, plan) => {
    const found = await exploreAdmission(plan)
    expect(found.broken).toContain('restart')
  })
})

import { readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { ASSUMPTIONS, verify } from '../../sim/assumptions.ts'

const page = readFileSync(path.resolve(import.meta.dirname, '../../docs/guarantees.md'), 'utf8').replaceAll(/\s+/g, ' ')

/** Seeds beside those in which something is known to break. */
const OTHERS = [101, 102, 103]

describe.each(ASSUMPTIONS.map((assumption) => [assumption.name, assumption] as const))('%s', (_name, assumption) => {
  test('is said to break something', () => {
    expect(page).toContain(assumption.said)
  })

  test('breaks what it is said to break, and nothing else', async () => {
    const { breaks } = assumption
    const seen = new Set<string>()
    for (const [promise, seed] of Object.entries(breaks)) {
      const { broken, wrong } = await verify(assumption, seed)
      expect(wrong).toEqual([])
      expect(broken).toContain(promise)
      for (const one of broken) seen.add(one)
    }
    for (const seed of OTHERS) {
      const { broken, wrong } = await verify(assumption, seed)
      expect(wrong, `seed ${seed}`).toEqual([])
      for (const one of broken) seen.add(one)
    }
    expect([...seen].sort()).toEqual(Object.keys(breaks).sort())
  })
})

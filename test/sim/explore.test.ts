import { describe, expect, test } from 'vitest'
import { EXPLORATIONS, WRONG_RESTARTS } from '../../sim/explore/catalogue.ts'
import { explore } from '../../sim/explore/explore.ts'
import { Canonical, clientAt, linkAt, NODE, nodeAt, Seen, shapeOf } from '../../sim/explore/state.ts'

const small = Object.entries(EXPLORATIONS).filter(([, { size }]) => size === 'small')

describe('the protocol, by its own scripts and its own decision, in every order of events', () => {
  test.each(small)('holds with %s', { timeout: 300_000 }, (_name, configuration) => {
    const found = explore(configuration)
    expect(found).toMatchObject({ verdict: 'holds', trail: [], why: undefined })
    expect(found.states).toBeGreaterThan(10_000)
    // Two states taken for one would be a hole in the exploration.
    expect(found.doubt).toBeLessThan(1e-6)
  })

  test.each(Object.entries(WRONG_RESTARTS))(
    'is broken by a node that %s',
    { timeout: 300_000 },
    (_name, configuration) => {
      const found = explore(configuration)
      expect(found.verdict).toBe('broken')
      expect(found.trail.length).toBeGreaterThan(5)
      expect(found.trail.some((step) => step.includes('crashes'))).toBe(true)
    },
  )

  test('is called not exhausted when it was not', () => {
    expect(explore(EXPLORATIONS['two clients']!, { states: 500 }).verdict).toBe('not exhausted')
  })
})

describe('states', () => {
  const shape = shapeOf(3, 2)

  test('that differ in the names of nodes and clients only are one', () => {
    const canonical = new Canonical(shape, [
      [0, 1],
      [1, 0],
    ])
    const one = new Uint8Array(shape.bytes)
    one[clientAt(0)] = 1
    one[nodeAt(shape, 2) + NODE.owner] = 1
    one[linkAt(shape, 2, 0)] = 7
    const other = new Uint8Array(shape.bytes)
    other[clientAt(1)] = 1
    other[nodeAt(shape, 0) + NODE.owner] = 2
    other[linkAt(shape, 0, 1)] = 7
    expect(canonical.of(one).slice()).toEqual(canonical.of(other).slice())
    other[linkAt(shape, 0, 1)] = 6
    expect(canonical.of(one).slice()).not.toEqual(canonical.of(other).slice())
  })

  test('are recognised again, however many there are', () => {
    const seen = new Seen(4)
    const state = new Uint8Array(4)
    const view = new DataView(state.buffer)
    for (let number = 0; number < 5000; number++) {
      view.setUint32(0, number)
      expect(seen.add(state)).toBe(true)
      expect(seen.add(state)).toBe(false)
    }
    expect(seen.count).toBe(5000)
  })
})

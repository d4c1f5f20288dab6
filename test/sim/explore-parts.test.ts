import { describe, expect, test } from 'vitest'
import { ELECTIONS, WRONG_ELECTIONS } from '../../sim/explore/elections/catalogue.ts'
import { Elections } from '../../sim/explore/elections/explore.ts'
import { readable } from '../../sim/explore/elections/readable.ts'
import { chosen, exploreChosen, type Choice } from '../../sim/explore/everything.ts'
import { ONE_NODE, WRONG_NODES } from '../../sim/explore/one-node/catalogue.ts'
import { exploreOneNode } from '../../sim/explore/one-node/model.ts'

const timeout = 300_000

describe('one node, whatever clients ask of it, by its own scripts', () => {
  const small = Object.entries(ONE_NODE).filter(([, { size }]) => size === 'small')

  test.each(small)('keeps its part of every promise: %s', { timeout }, (_name, one) => {
    const found = exploreOneNode(one)
    expect(found).toMatchObject({ verdict: 'holds', trail: [], why: undefined })
    expect(found.states).toBeGreaterThan(1000)
    expect(found.doubt).toBeLessThan(1e-6)
  })

  test.each(Object.entries(WRONG_NODES))('breaks one if it %s', { timeout }, (_name, one) => {
    const found = exploreOneNode(one)
    expect(found.verdict).toBe('broken')
    expect(found.trail.length).toBeGreaterThan(5)
  })
})

describe('an election, whatever the nodes answer, by the shipped code', () => {
  const small = Object.entries(ELECTIONS).filter(([, { size }]) => size === 'small')

  test.each(small)('wins by the votes of a quorum, leaves nothing, and ends: %s', { timeout }, async (_name, one) => {
    const found = new Elections(await readable(), one).explore()
    expect(found).toMatchObject({ verdict: 'holds', why: undefined, trail: [] })
    expect(found.wins).toBeGreaterThan(100)
    expect(found.losses).toBeGreaterThan(100)
  })

  test.each(Object.entries(WRONG_ELECTIONS))('is seen to be wrong if it %s', { timeout }, async (_name, one) => {
    const found = new Elections(await readable(one.change), one).explore()
    expect(found.verdict).toBe('broken')
    expect(found.trail.length).toBeGreaterThan(1)
  })
})

describe('npm run sim -- --explore', () => {
  test('takes the small configurations, unless all or a name are asked for', () => {
    expect(sizes({})).toEqual(['small'])
    expect(sizes({ all: true }).toSorted()).toEqual(['large', 'small', 'unfinished'])
    expect(sizes({ only: 'five nodes, three clients' })).toEqual(['unfinished'])
  })

  test('finds nothing wrong with what was not exhausted, but with a wrong one that was not found', async () => {
    const [isRight, line] = await told({ only: 'two clients', most: 100 })
    expect(line).toMatch(/^two clients: not exhausted; \d+ states/)
    expect(isRight).toBe(true)
    const [isFound, other] = await told({ only: 'wrong: votes at once after it forgot', most: 10 })
    expect(other).toContain('not exhausted')
    expect(isFound).toBe(false)
  })

  test('says that there is no configuration of a name', async () => {
    expect(await told({ only: 'four clients on a boat' })).toEqual([
      false,
      "no configuration has 'four clients on a boat' in its name",
    ])
  })
})

function sizes(choice: Choice): string[] {
  return [...new Set(chosen(choice).map(({ size }) => size))]
}

async function told(choice: Choice): Promise<readonly [boolean, string]> {
  const lines: string[] = []
  return [await exploreChosen(choice, (line) => lines.push(line)), lines.join('\n')]
}

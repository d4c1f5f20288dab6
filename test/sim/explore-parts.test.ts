import { describe, expect, test } from 'vitest'
import { EXPLORATIONS, PROJECTIONS, WRONG_RESTARTS } from '../../sim/explore/catalogue.ts'
import type { Configuration } from '../../sim/explore/configuration.ts'
import { ELECTIONS, WRONG_ELECTIONS } from '../../sim/explore/elections/catalogue.ts'
import { Elections } from '../../sim/explore/elections/explore.ts'
import { readable } from '../../sim/explore/elections/readable.ts'
import { chosen, exploreChosen, type Choice } from '../../sim/explore/everything.ts'
import { ONE_NODE, WRONG_NODES } from '../../sim/explore/one-node/catalogue.ts'
import { Loose } from '../../sim/explore/loose.ts'
import { exploreOneNode, OneNode, type OneNodeConfiguration } from '../../sim/explore/one-node/model.ts'
import { project } from '../../sim/explore/one-node/projection.ts'
import { CLIENT, clientAt, NODE, nodeAt, type State } from '../../sim/explore/state.ts'
import { Views, type Decisions } from '../../sim/explore/views.ts'

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

describe('each of several nodes', () => {
  const small = Object.entries(PROJECTIONS).filter(([, { size }]) => size === 'small')
  const base: Configuration = EXPLORATIONS['two clients']!
  const one: OneNodeConfiguration = { wants: [[0], [0]], most: 15, clocks: 'any', handOver: false, crash: 'none' }

  test.each(small)('goes a way through the model of one, on which each promise is seen: %s', { timeout }, (name) => {
    const found = project(EXPLORATIONS[name]!)
    expect(found).toMatchObject({ verdict: 'holds', trail: [], why: undefined })
    expect(found.states).toBeGreaterThan(400)
    expect(found.doubt).toBeLessThan(1e-6)
  })

  test('does so in the first states of three clients on five nodes', { timeout }, () => {
    const found = project(EXPLORATIONS['five nodes, three clients']!, { states: 5000 })
    expect(found).toMatchObject({ verdict: 'not exhausted', trail: [], why: undefined })
  })

  test('breaks a promise as one node if several break it', { timeout }, () => {
    const found = project(WRONG_RESTARTS['sits out, but numbers from nothing']!)
    expect(found.verdict).toBe('broken')
    expect(found.why).toMatch(/^c\d got \d after \d had been given; on one node: c\d got \d after \d had been given$/)
  })

  test.each<[string, Partial<OneNodeConfiguration>, Configuration, RegExp]>([
    ['does not crash', {}, EXPLORATIONS['two clients, a crash']!, /^not followed on n\d: n\d crashes$/],
    ['has good clocks', { clocks: 'good' }, base, /^not followed on n\d: key of c\d expires/],
    ['has small numbers only', { most: 2 }, base, /^not followed on n\d: .* granted 3$/],
    ['knows no hand-overs', { wants: [[0], [0], [0]] }, EXPLORATIONS['two adopt']!, /^not followed on n\d: acquire/],
    [
      'confirms nothing',
      { change: (text) => text.replaceAll('return {1, ARGV[2]}', "return {0, '0'}") },
      base,
      /^c\d has won with the votes of [01]$/,
    ],
  ])('is not followed by one node that %s', { timeout }, (_name, change, configuration, why) => {
    const found = project(configuration, {}, undefined, new OneNode({ ...one, ...change }))
    expect(found).toMatchObject({ verdict: 'broken', why: expect.stringMatching(why) })
  })

  test.each<[string, Loose, RegExp]>([
    ['win with the votes of one node', new Loose(base, new Hasty(base.nodes)), /^c\d has won with the votes of 1$/],
    ['keep a number that no node knows', new Knowing(base), /^no node knows that \d is too low$/],
    ['move a counter by themselves', new Meddling(base), /^not followed on n0: /],
  ])('is seen to be wrong where clients %s', { timeout }, (_name, many, why) => {
    const found = project(base, {}, many)
    expect(found).toMatchObject({ verdict: 'broken', why: expect.stringMatching(why) })
  })
})

/** Wins with every number that any node has voted for. */
class Hasty extends Views {
  override decisions(said: readonly number[], asked: number): Decisions {
    const wins = said.reduce((set, one) => set | (one >>> 16), 0)
    return { ...super.decisions(said, asked), wins }
  }
}

class Knowing extends Loose {
  protected override begun(next: State, client: number): void {
    super.begun(next, client)
    next[clientAt(this.shape, client) + CLIENT.floor] = 1
  }
}

class Meddling extends Loose {
  protected override begun(next: State, client: number): void {
    super.begun(next, client)
    next[nodeAt(this.shape, 0) + NODE.fence]! += 1
  }
}

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

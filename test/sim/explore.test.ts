import { describe, expect, test } from 'vitest'
import { EXPLORATIONS, REFINEMENTS, WRONG_ADOPTIONS, WRONG_RESTARTS } from '../../sim/explore/catalogue.ts'
import type { Configuration } from '../../sim/explore/configuration.ts'
import { explore } from '../../sim/explore/explore.ts'
import { Fingerprint } from '../../sim/explore/fingerprint.ts'
import { ASKED, Loose } from '../../sim/explore/loose.ts'
import { Refinement, refine } from '../../sim/explore/refinement.ts'
import { CLIENT, clientAt, linkAt, NODE, nodeAt, PHASE, Seen, shapeOf, type State } from '../../sim/explore/state.ts'
import { Views } from '../../sim/explore/views.ts'
import { Seeded } from '../../sim/random.ts'

// Exact clients are explored below, with loose ones that follow them.
const small = Object.entries(EXPLORATIONS).filter(([, { size, model }]) => size === 'small' && model === 'loose')

describe('the protocol, by its own scripts and its own decision, in every order of events', () => {
  test.each(small)('holds with %s', { timeout: 300_000 }, (_name, configuration) => {
    const found = explore(configuration)
    expect(found).toMatchObject({ verdict: 'holds', trail: [], why: undefined })
    expect(found.states).toBeGreaterThan(100)
    // Two states taken for one would be a hole in the exploration.
    expect(found.doubt).toBeLessThan(1e-6)
  })

  test.each(Object.entries(WRONG_RESTARTS))(
    'is broken by a node that %s',
    { timeout: 300_000 },
    (_name, configuration) => {
      // With good clocks exact clients would take longer than all the rest.
      for (const model of configuration.clocks === 'any' ? (['loose', 'exact'] as const) : (['loose'] as const)) {
        const found = explore({ ...configuration, model })
        expect(found.verdict).toBe('broken')
        expect(found.trail.length).toBeGreaterThan(5)
        expect(found.trail.some((step) => step.includes('crashes'))).toBe(true)
      }
    },
  )

  test.each(Object.entries(WRONG_ADOPTIONS))('is broken by a node that %s', (_name, configuration) => {
    const found = explore(configuration)
    expect(found.verdict).toBe('broken')
    expect(found.trail.some((step) => step.includes('crashes'))).toBe(true)
  })

  test('is called not exhausted when it was not', () => {
    expect(explore(EXPLORATIONS['two clients']!, { states: 100 }).verdict).toBe('not exhausted')
  })
})

describe('the loose clients', () => {
  const base: Configuration = EXPLORATIONS['two clients']!

  test('may do whatever exact ones do, in every state', { timeout: 300_000 }, () => {
    const found = refine(base)
    expect(found).toMatchObject({ verdict: 'holds', trail: [], why: undefined })
    expect(found.states).toBeGreaterThan(200_000)
    expect(found.doubt).toBeLessThan(1e-6)
  })

  const more = Object.entries(REFINEMENTS).filter(([, { size }]) => size !== 'small')

  test.each(more)('may do whatever exact ones do, in the first states: %s', { timeout: 300_000 }, (name) => {
    const found = refine(EXPLORATIONS[name]!, { states: 20_000 })
    expect(found).toMatchObject({ verdict: 'not exhausted', trail: [], why: undefined })
  })

  test.each<[string, Configuration, (configuration: Configuration) => Loose]>([
    ['ask for nothing any more once they have decided', base, (one) => new Silent(one)],
    ['have heard either all answers or none', base, (one) => new Loose(one, new Views(one.nodes, 0))],
    ['may have a token below one that was given before', base, (one) => new Baseless(one)],
    ['keep their keys for longer', { ...base, clocks: 'good' }, (one) => new Lasting(one)],
  ])('are seen to be wrong if they %s', { timeout: 120_000 }, (_name, configuration, loose) => {
    const found = refine(configuration, {}, loose(configuration))
    expect(found.verdict).toBe('broken')
    expect(found.trail.length).toBeGreaterThan(3)
  })

  const all: Configuration = { ...base, duplicates: 1, crash: 'sit-out' }

  test.each<[string, Configuration, number]>([
    ['a repeated request, a crash', all, 100],
    ['three clients', { ...all, proposals: [1, 1, 1] }, 100],
    ['five nodes', { ...all, nodes: 5 }, 50],
    ['proposals apart', { ...all, quick: false, proposals: [1, 3] }, 100],
    ['good clocks', { ...all, clocks: 'good' }, 100],
  ])('follow exact ones at random where these have too many states: %s', { timeout: 120_000 }, (name, one, walks) => {
    const random = new Seeded(name)
    let wins = 0
    for (let walk = 0; walk < walks; walk++) wins += walkOf(new Refinement(one), random).length
    expect(wins).toBeGreaterThan(walks / 10)
  })

  test('come to the same decisions if they may have heard of more nodes than a quorum', () => {
    const random = new Seeded('views')
    const some = new Views(5)
    const every = new Views(5, 5)
    const set = (): number => random.int(0, 15) << 1
    for (let trial = 0; trial < 300; trial++) {
      // Whoever says that a higher number is in the way has granted a lower one before.
      const said = Array.from({ length: 5 }, () => {
        const votes = set()
        return votes === 0 ? 0 : (votes << 16) | (set() & ~((votes & -votes) - 1) & ~votes)
      })
      const asked = set() & set()
      expect(some.decisions(said, asked)).toEqual(every.decisions(said, asked))
    }
  })
})

/** Loose clients that are not loose enough. */
class Silent extends Loose {
  protected override forget(next: State, client: number): void {
    super.forget(next, client)
    next[clientAt(this.shape, client) + ASKED] = 0
  }
}

class Baseless extends Loose {
  protected override begun(next: State, client: number): void {
    super.begun(next, client)
    next[clientAt(this.shape, client) + CLIENT.floor] = 0
  }
}

class Lasting extends Loose {
  protected override mayExpire(state: State, client: number): boolean {
    return this.phase(state, client) === PHASE.won && super.mayExpire(state, client)
  }
}

/** The wins of one walk of exact clients and of loose ones that follow. */
function walkOf(pairs: Refinement, random: Seeded): string[] {
  let state = pairs.start()
  const wins: string[] = []
  for (;;) {
    const moves: { text: string; next: State }[] = []
    pairs.moves(state, (next, broken, text) => {
      if (broken !== undefined) throw new Error(broken)
      moves.push({ text: text(), next: next.slice() })
    })
    if (moves.length === 0) return wins
    const chosen = random.pick(moves)
    // Else nobody would get far.
    if (/time is up|fails/.test(chosen.text) && random.chance(0.95)) continue
    if (chosen.text.includes('has won')) wins.push(chosen.text)
    state = chosen.next
  }
}

describe('states', () => {
  const shape = shapeOf(3, 2, { client: 1, link: 2 })
  const fingerprint = (state: State): number[] => {
    const taken = new Fingerprint(shape, [1, 1])
    taken.of(state)
    return [taken.a, taken.b]
  }

  test('that differ in the names of nodes and clients only are one', () => {
    const one = new Uint16Array(shape.words)
    one[clientAt(shape, 0)] = 1
    one[nodeAt(shape, 2) + NODE.owner] = 1
    one[linkAt(shape, 2, 0)] = 7
    const other = new Uint16Array(shape.words)
    other[clientAt(shape, 1)] = 1
    other[nodeAt(shape, 0) + NODE.owner] = 2
    other[linkAt(shape, 0, 1)] = 7
    expect(fingerprint(one)).toEqual(fingerprint(other))
    other[linkAt(shape, 0, 1)] = 6
    expect(fingerprint(one)).not.toEqual(fingerprint(other))
  })

  test('of clients that are no more alike than their proposals are two', () => {
    const apart = new Fingerprint(shape, [1, 3])
    const of = (client: number): number[] => {
      const state = new Uint16Array(shape.words)
      state[clientAt(shape, client)] = 1
      apart.of(state)
      return [apart.a, apart.b]
    }
    expect(of(0)).not.toEqual(of(1))
  })

  test('are recognised again, however many there are', () => {
    const seen = new Seen(4)
    for (let number = 0; number < 5000; number++) {
      expect(seen.add(number, number >>> 4)).toBe(true)
      expect(seen.add(number, number >>> 4)).toBe(false)
    }
    expect(seen.count).toBe(5000)
  })
})

import { describe, expect, test } from 'vitest'
import { EXPLORATIONS, WRONG_ADOPTIONS, WRONG_RESTARTS } from '../../sim/explore/catalogue.ts'
import type { Configuration } from '../../sim/explore/configuration.ts'
import { Exact } from '../../sim/explore/exact.ts'
import { explore } from '../../sim/explore/explore.ts'
import { Fingerprint } from '../../sim/explore/fingerprint.ts'
import { Loose } from '../../sim/explore/loose.ts'
import { clientAt, linkAt, NODE, nodeAt, Seen, shapeOf, type State } from '../../sim/explore/state.ts'
import { Views } from '../../sim/explore/views.ts'
import { Seeded } from '../../sim/random.ts'

const small = Object.entries(EXPLORATIONS).filter(([, { size }]) => size === 'small')

describe('the protocol, by its own scripts and its own decision, in every order of events', () => {
  test.each(small)('holds with %s', { timeout: 300_000 }, (_name, configuration) => {
    const found = explore(configuration)
    expect(found).toMatchObject({ verdict: 'holds', trail: [], why: undefined })
    expect(found.states).toBeGreaterThan(configuration.model === 'exact' ? 100_000 : 100)
    // Two states taken for one would be a hole in the exploration.
    expect(found.doubt).toBeLessThan(1e-6)
  })

  test.each(Object.entries(WRONG_RESTARTS))(
    'is broken by a node that %s',
    { timeout: 300_000 },
    (_name, configuration) => {
      for (const model of ['loose', 'exact'] as const) {
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
  const base: Configuration = {
    ...EXPLORATIONS['two clients']!,
    duplicates: 1,
    crash: 'sit-out',
  }

  test.each<[string, Configuration, number]>([
    ['three nodes', base, 500],
    ['three nodes, three clients', { ...base, proposals: [1, 1, 1] }, 200],
    ['five nodes', { ...base, nodes: 5 }, 100],
    ['proposals apart', { ...base, quick: false, proposals: [1, 3] }, 200],
    ['good clocks', { ...base, clocks: 'good' }, 500],
  ])('may do whatever the exact ones do: %s', { timeout: 120_000 }, (name, configuration, walks) => {
    const random = new Seeded(name)
    let wins = 0
    let confirmed = 0
    for (let walk = 0; walk < walks; walk++) {
      const steps = shadowed(configuration, random)
      wins += steps.filter((step) => step.includes('has won')).length
      confirmed += steps.filter((step) => step.includes(': confirmed')).length
    }
    expect(wins).toBeGreaterThan(walks / 10)
    expect(confirmed).toBeGreaterThan(walks / 10)
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

interface Move {
  readonly text: string
  readonly next: State
}

function movesOf(model: Exact | Loose, state: State): Move[] {
  const moves: Move[] = []
  model.moves(state, (next, broken, text) => {
    if (broken !== undefined) throw new Error(broken)
    moves.push({ text: text(), next: next.slice() })
  })
  return moves
}

/** What happens on the nodes and who wins; what is only heard, or changes nothing, is the exact clients' own matter. */
function essence(text: string): string | undefined {
  const won = /^(c\d).* has won with (\d+)$/.exec(text)
  if (won !== null) return `${won[1]} has won with ${won[2]}`
  // Who gives up lets its keys go, and so does who has no time left.
  const gaveUp = /^time is up for (c\d)$|^(?:request of )?(c\d) .* gives up$/.exec(text)
  if (gaveUp !== null) return `validity of ${gaveUp[1] ?? gaveUp[2]} is over`
  if (/ hears | begins$|time is up|request of .* fails|: refused|: no$|: higher/.test(text)) return undefined
  return text.replace(/^key of c\d expires, then /, '').replace(/ again(, unheard,)?/, '')
}

/** A walk of the exact clients that loose ones follow. */
function shadowed(configuration: Configuration, random: Seeded): string[] {
  const exact = new Exact({ ...configuration, model: 'exact' })
  const loose = new Loose(configuration)
  let state = exact.start()
  let shadow = loose.start()
  const steps: string[] = []
  const ended = new Set<string>()
  for (let moves = movesOf(exact, state); moves.length > 0; moves = movesOf(exact, state)) {
    const chosen = random.pick(moves)
    // Else nobody would get far.
    if (/time is up|fails/.test(chosen.text) && random.chance(0.95)) continue
    steps.push(chosen.text)
    state = chosen.next
    const wanted = essence(chosen.text)
    if (wanted === undefined) continue
    const isSame = (next: State): boolean => sameNodes(exact, state, loose, next)
    const follow = (step: string): boolean => {
      const followed = movesOf(loose, shadow).find(({ text, next }) => essence(text) === step && isSame(next))
      shadow = followed?.next ?? shadow
      return followed !== undefined
    }
    // To a loose winner its key is all the same: it lifts the counter by a release as well.
    const isFollowed = follow(wanted) || follow(wanted.replace('extend', 'release'))
    // What changes nothing any more need not be there.
    if (!isFollowed && (!isSame(shadow) || wanted.includes('has won')))
      throw new Error(`not followed: ${steps.join('; ')}`)
    // Loose ones begin later: their time can't be over before.
    if (wanted.startsWith('validity')) ended.add(wanted)
    for (const end of ended) follow(end)
  }
  return steps
}

function sameNodes(exact: Exact, state: State, loose: Loose, shadow: State): boolean {
  return Array.from({ length: exact.shape.nodes }, (_, node) => node).every((node) => {
    const [a, b] = [nodeAt(exact.shape, node), nodeAt(loose.shape, node)]
    return state[a + NODE.fence] === shadow[b + NODE.fence] && state[a + NODE.status] === shadow[b + NODE.status]
  })
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

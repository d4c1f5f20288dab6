import type { Configuration } from './configuration.ts'
import { Exact } from './exact.ts'
import { Fingerprint } from './fingerprint.ts'
import { exploreAll, type Explorable, type Explored, type Limits } from './explore.ts'
import { Loose } from './loose.ts'
import type { Model, Visit } from './model.ts'
import { PairLayout } from './pair.ts'
import { CLIENT, clientAt, NODE, nodeAt, PHASE, type Shape, type State } from './state.ts'

/** Whether loose clients can do all that exact ones can: `holds`, or `broken` by a step that they cannot follow. */
export function refine(configuration: Configuration, limits: Limits = {}, loose?: Loose): Explored {
  const pairs = new Refinement(configuration, loose)
  return exploreAll(pairs, new Fingerprint(pairs.shape, configuration.proposals), limits)
}

/**
 * Exact clients and, beside them, loose ones that follow: a state is one of each. Whatever the exact ones do next, the loose
 * ones must have a step (or two, or none) after which they are in agreement again. All pairs that can be reached are visited, so together
 * they are a simulation relation. What `agreement` asks for is what makes a promise that exact clients break be broken by
 * the loose ones, too. The loose ones take the first step that fits. If that led to a dead end where another would not, the
 * check would fail; that it holds is enough.
 */
export class Refinement implements Explorable {
  readonly shape: Shape
  readonly #exact: Exact
  readonly #follower: Follower
  readonly #layout: PairLayout

  constructor(configuration: Configuration, loose = new Loose(configuration)) {
    this.#exact = new Exact({ ...configuration, model: 'exact' })
    this.#follower = new Follower(this.#exact, loose)
    this.#layout = new PairLayout(this.#exact.shape, loose.shape)
    this.shape = this.#layout.shape
  }

  start(): State {
    const pair = new Uint16Array(this.shape.words)
    this.#layout.pack(this.#exact.start(), this.#follower.loose.start(), pair)
    return pair
  }

  moves(pair: State, visit: Visit): void {
    const { exact, loose } = this.#layout.unpack(pair)
    const next = new Uint16Array(this.shape.words)
    this.#exact.moves(exact, (state, broken, text) => {
      const followed = this.#follower.follow(text(), state, loose, broken)
      this.#layout.pack(state, typeof followed === 'string' ? loose : followed, next)
      visit(next, typeof followed === 'string' ? followed : undefined, text)
    })
  }
}

interface Move {
  readonly next: State
  readonly broken: string | undefined
}

/** Of this many loose states the moves are remembered; all are forgotten when there are more. */
const MOST_REMEMBERED = 300_000

class Follower {
  readonly loose: Loose
  readonly #exact: Shape
  /** By what they do. */
  #moves = new Map<string, ReadonlyMap<string, readonly Move[]>>()
  /** Mostly it is asked for the same ones again. */
  #last: { state: State | undefined; moves: ReadonlyMap<string, readonly Move[]> } = {
    state: undefined,
    moves: new Map(),
  }

  constructor(exact: Model, loose: Loose) {
    this.#exact = exact.shape
    this.loose = loose
  }

  /** Where the loose clients are after the exact ones have come to a state by a step; or why they cannot follow. */
  follow(text: string, exact: State, from: State, broken: string | undefined): State | string {
    const wanted = essenceOf(text)
    if (wanted === undefined) return this.#agreed(exact, from) ?? `apart: ${text}`
    // A loose winner does not need its key: it lifts the counter by a release as well. What changes nothing need not be there.
    for (const step of [wanted, wanted.replace('extend', 'release')]) {
      for (const move of this.#movesOf(from).get(step) ?? []) {
        const agreed = this.#agreed(exact, move.next)
        if (agreed !== undefined && (broken === undefined || move.broken !== undefined)) return agreed
      }
    }
    if (broken === undefined) return this.#agreed(exact, from) ?? `not followed: ${text}`
    return `not broken by loose clients: ${broken}`
  }

  #movesOf(state: State): ReadonlyMap<string, readonly Move[]> {
    if (state !== this.#last.state) this.#last = { state, moves: this.#movesKnown(state) }
    return this.#last.moves
  }

  #movesKnown(state: State): ReadonlyMap<string, readonly Move[]> {
    const key = String.fromCharCode(...state)
    let known = this.#moves.get(key)
    if (known !== undefined) return known
    const moves = new Map<string, Move[]>()
    this.loose.moves(state, (next, broken, text) => {
      const step = essenceOf(text())
      if (step === undefined) return
      const same = moves.get(step)
      const move = { next: next.slice(), broken }
      if (same === undefined) moves.set(step, [move])
      else same.push(move)
    })
    if (this.#moves.size >= MOST_REMEMBERED) this.#moves = new Map()
    this.#moves.set(key, (known = moves))
    return known
  }

  /** The loose state, in which the validity of those is over that it is over for, and who has lost an adoption wants no more; undefined without agreement. */
  #agreed(exact: State, loose: State): State | undefined {
    let state = loose
    const silently = (step: string): void => {
      const [made] = this.#movesOf(state).get(step) ?? []
      state = made?.next ?? state
    }
    for (let client = 0; client < this.#exact.clients; client++) {
      const there = clientAt(this.loose.shape, client)
      const here = clientAt(this.#exact, client)
      // Loose ones begin later, so their time cannot be over before.
      if (isOver(exact, here) && state[there + CLIENT.over] === 0) silently(`validity of c${client} is over`)
      if (exact[here + CLIENT.phase] === PHASE.lost) silently(`c${client} wants no more`)
    }
    return this.#isAgreed(exact, state) ? state : undefined
  }

  #isAgreed(exact: State, loose: State): boolean {
    for (let node = 0; node < this.#exact.nodes; node++) {
      const [a, b] = [nodeAt(this.#exact, node), nodeAt(this.loose.shape, node)]
      if (exact[a + NODE.fence] !== loose[b + NODE.fence] || exact[a + NODE.status] !== loose[b + NODE.status])
        return false
    }
    for (let client = 0; client < this.#exact.clients; client++) {
      const [a, b] = [clientAt(this.#exact, client), clientAt(this.loose.shape, client)]
      const phase = exact[a + CLIENT.phase]!
      if ((phase === PHASE.won) !== (loose[b + CLIENT.phase] === PHASE.won)) return false
      if (exact[a + CLIENT.token] !== loose[b + CLIENT.token]) return false
      // A client that holds is seen to hold, and no token is high enough for a loose client that is not for the exact one.
      if (phase === PHASE.won && exact[a + CLIENT.over]! < loose[b + CLIENT.over]!) return false
      const hasBegun = loose[b + CLIENT.phase] !== PHASE.idle
      if (phase === PHASE.running && hasBegun && exact[a + CLIENT.floor]! > loose[b + CLIENT.floor]!) return false
    }
    return true
  }
}

function isOver(state: State, client: number): boolean {
  return state[client + CLIENT.over] === 1 || state[client + CLIENT.phase] === PHASE.lost
}

const ESSENCES = new Map<string, string | undefined>()

/** What happens on the nodes and who wins; what is only heard, or changes nothing, is the exact clients' own matter. */
function essenceOf(text: string): string | undefined {
  if (ESSENCES.has(text)) return ESSENCES.get(text)
  const essence = essenceAnew(text)
  ESSENCES.set(text, essence)
  return essence
}

function essenceAnew(text: string): string | undefined {
  const won = /^(c\d).* has won with (\d+)$/.exec(text)
  if (won !== null) return `${won[1]} has won with ${won[2]}`
  if (/ hears | begins$|time is up|gives up|request of .* fails|: refused|: no$|: higher/.test(text)) return undefined
  return text.replace(/^key of c\d expires, then /, '').replace(/ again(, unheard,)?/, '')
}

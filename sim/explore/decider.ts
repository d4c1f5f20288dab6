import { count, decide, noBallots, type Ballots, type NodeAnswer } from '../../src/engines/redis/votes.ts'
import { HEARD, LINK, OWN } from './exact-state.ts'
import { clientAt, linkAt, numbersIn, type Shape, type State } from './state.ts'

/** As often as a client lets the number to confirm rise; see election.ts. */
const CONFIRM_ROUNDS = 4

/** What hearing an answer does to a client: its ballot, what it asks for, and whether it is decided. */
export interface Heard {
  readonly columns: readonly { heard: number; fence: number; votes: number; asked: number; ask: number }[]
  readonly confirming: number
  readonly rounds: number
  readonly outcome: 'open' | 'lost' | { readonly token: number }
}

/** The clients' side, by the shipped decision, and remembered: different states look alike to a client. */
export class Decider {
  readonly #shape: Shape
  readonly #heard = new Map<string, Heard>()

  constructor(shape: Shape) {
    this.#shape = shape
  }

  /** The shipped decision on what a client has heard. */
  decide(state: State, client: number, from: number, answers: readonly { node: number; answer: NodeAnswer }[]): Heard {
    const { nodes } = this.#shape
    const at = clientAt(this.#shape, client)
    let key = String.fromCharCode(from + 1, state[at + OWN.confirming]!, state[at + OWN.rounds]!)
    for (let node = 0; node < nodes; node++) {
      const link = linkAt(this.#shape, node, client)
      const ballot = (state[link + LINK.heard]! << 5) | (state[link + LINK.fence]! << 1) | state[link + LINK.asked]!
      key += String.fromCharCode(ballot, state[link + LINK.votes]!)
    }
    // Of answers that come together, the ballots tell which they are.
    if (answers.length === 1) key += String.fromCharCode(codeOf(answers[0]!.answer))
    let heard = this.#heard.get(key)
    if (heard === undefined) {
      heard = this.#decideAnew(state, client, answers)
      this.#heard.set(key, heard)
    }
    return heard
  }

  #decideAnew(state: State, client: number, answers: readonly { node: number; answer: NodeAnswer }[]): Heard {
    const links = Array.from({ length: this.#shape.nodes }, (_, node) => linkAt(this.#shape, node, client))
    const asked = links.map((link) => state[link + LINK.asked]!)
    const failed = links.map((link) => state[link + LINK.heard] === HEARD.failed)
    let ballots: Ballots = noBallots(links.length).map((_, node) => ballotOf(state, links[node]!))
    for (const { node, answer } of answers) {
      if (answer.kind === 'granted') asked[node] = 0
      ballots = count(ballots, node, answer)
    }
    let confirming = state[clientAt(this.#shape, client) + OWN.confirming]!
    let rounds = state[clientAt(this.#shape, client) + OWN.rounds]!
    const ask = links.map(() => 0)
    const decision = decide(ballots, confirming)
    let outcome: Heard['outcome'] =
      decision.kind === 'won' ? { token: decision.token } : decision.kind === 'lost' ? 'lost' : 'open'
    if (decision.kind === 'confirm') {
      if (decision.token !== confirming) {
        confirming = decision.token
        asked.fill(0)
        if (rounds++ >= CONFIRM_ROUNDS) outcome = 'lost'
      }
      for (const node of decision.nodes) {
        if (asked[node] === 1) continue
        asked[node] = 1
        ask[node] = confirming
      }
    }
    const columns = ballots.map(({ state: said, fence, votes }, node) => ({
      heard: failed[node]! ? HEARD.failed : said === 'silent' ? HEARD.silent : said === 'ours' ? HEARD.ours : HEARD.out,
      fence,
      votes: votes.reduce((set, token) => set | (1 << token), 0),
      asked: asked[node]!,
      ask: ask[node]!,
    }))
    return { columns, confirming, rounds, outcome }
  }
}

function codeOf(answer: NodeAnswer): number {
  switch (answer.kind) {
    case 'out':
      return 0
    case 'granted':
      return 32 + answer.fence
    case 'confirmed':
      return 64 + answer.token
    case 'higher':
      return 96 + answer.fence
  }
}

function ballotOf(state: State, link: number): Ballots[number] {
  const heard = state[link + LINK.heard]!
  return {
    state: heard === HEARD.silent ? 'silent' : heard === HEARD.ours ? 'ours' : 'out',
    fence: state[link + LINK.fence]!,
    votes: numbersIn(state[link + LINK.votes]!),
  }
}

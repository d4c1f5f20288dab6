import { count, decide, noBallots, quorumOf, type Ballots, type NodeAnswer } from '../../src/engines/redis/votes.ts'
import { numbersIn } from './state.ts'

/** What a client may do by the shipped decision: sets of numbers that it may ask for, and with which it may have won. */
export interface Decisions {
  readonly asks: number
  readonly wins: number
}

/**
 * What a client may decide, whatever part of the answers it has heard: of a quorum of the nodes any one answer or all of them,
 * and all answers of all nodes. (More nodes than a quorum, with fewer answers, lead to the same numbers: what is asked for is
 * the number that the last of a quorum has. A test compares.)
 */
export class Views {
  readonly #nodes: number
  readonly #most: number
  readonly #known = new Map<string, Decisions>()

  /** `most`: of how many nodes it may have heard. */
  constructor(nodes: number, most = quorumOf(nodes)) {
    this.#nodes = nodes
    this.#most = most
  }

  /** `said`: of each node the set of its votes, shifted by 16, and of the numbers that were in the way. */
  decisions(said: readonly number[], asked: number): Decisions {
    // The order of the nodes makes no difference.
    const key = `${said.toSorted((a, b) => a - b).join()} ${asked}`
    let decisions = this.#known.get(key)
    if (decisions === undefined) {
      decisions = this.#decide(said.map(answersOf), asked)
      this.#known.set(key, decisions)
    }
    return decisions
  }

  #decide(answers: readonly (readonly NodeAnswer[])[], asked: number): Decisions {
    let asks = 0
    let wins = 0
    const look = (ballots: Ballots): void => {
      for (const atLeast of [0, ...numbersIn(asked)]) {
        const decision = decide(ballots, atLeast)
        if (decision.kind === 'confirm') asks |= 1 << decision.token
        if (decision.kind === 'won') wins |= 1 << decision.token
      }
    }
    const hear = (ballots: Ballots, node: number, heard: number): void => {
      if (node === this.#nodes) return look(ballots)
      hear(ballots, node + 1, heard)
      if (heard === this.#most || answers[node]!.length === 0) return
      for (const answer of answers[node]!) hear(count(ballots, node, answer), node + 1, heard + 1)
      if (answers[node]!.length > 1) hear(all(ballots, node, answers[node]!), node + 1, heard + 1)
    }
    hear(noBallots(this.#nodes), 0, 0)
    look(answers.reduce((ballots, given, node) => all(ballots, node, given), noBallots(this.#nodes)))
    return { asks, wins }
  }
}

function all(ballots: Ballots, node: number, answers: readonly NodeAnswer[]): Ballots {
  return answers.reduce((counted, answer) => count(counted, node, answer), ballots)
}

/** In the order in which a node gives them: its numbers only grow. */
function answersOf(said: number): NodeAnswer[] {
  const votes = said >>> 16
  return numbersIn(votes | (said & 0xffff)).map((number, at) => {
    if (((votes >> number) & 1) === 0) return { kind: 'higher', fence: number }
    return at === 0 ? { kind: 'granted', fence: number } : { kind: 'confirmed', token: number }
  })
}

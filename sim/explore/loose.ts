import type { Configuration } from './configuration.ts'
import { Model } from './model.ts'
import {
  CLIENT,
  CLIENT_WORDS,
  clientAt,
  linkAt,
  NODE,
  nodeAt,
  numbersIn,
  PHASE,
  RUN,
  STATUS,
  type State,
} from './state.ts'
import type { Step } from './steps.ts'
import { Views } from './views.ts'

/** Of a client: which numbers it may have asked the nodes to confirm. */
export const ASKED = CLIENT_WORDS

/** Between a client and a node: whether it was granted, and as sets of numbers its votes and those that were in the way. */
const LINK = { granted: 0, votes: 1, higher: 2 } as const

/**
 * Clients of which less has to be known, because they may do more than real ones. What a node has answered, a client may
 * have heard or not, in any order, at any time: so it may have come to every decision that any part of the answers leads to,
 * and has asked for every number that it may have asked for. What it has asked for may arrive on any node, at any
 * time, and as often as it likes. Everything that a real client does is among that, and so is a request that fails.
 *
 * Nothing is lost by leaving out: a request that is refused (one that never arrives does as much), a client that gives up
 * (one that hears nothing more does as much, unless it adopts: then it gives back from there on), a beginning before the first request arrives (a later one is stricter: the
 * token must be above more others).
 */
export class Loose extends Model {
  readonly #views: Views

  constructor(configuration: Configuration, views = new Views(configuration.nodes)) {
    super(configuration, { client: 1, link: 3 })
    this.#views = views
  }

  protected override begin(state: State, client: number): void {
    const begun = state.slice()
    this.begun(begun, client)
    for (let node = 0; node < this.shape.nodes; node++) {
      if (this.isUp(state, node)) this.#acquire(begun, client, node)
    }
  }

  protected override arrivals(state: State, client: number, node: number): void {
    if (state[linkAt(this.shape, node, client) + LINK.granted] === 0 || state[RUN.duplicates]! > 0)
      this.#acquire(state, client, node)
    const asked = state[clientAt(this.shape, client) + ASKED]!
    for (const token of numbersIn(asked)) this.#confirm(state, client, node, token)
  }

  #acquire(state: State, client: number, node: number): void {
    const link = linkAt(this.shape, node, client)
    const isAgain = state[link + LINK.granted] === 1
    this.atNode(
      () => `acquire of c${client}${isAgain ? ' again' : ''}`,
      state,
      node,
      (owner, fence) => this.ask({ owner, fence }, client),
      (next, { number }) => {
        if (isAgain) next[RUN.duplicates] = next[RUN.duplicates]! - 1
        next[link + LINK.granted] = 1
        this.#answered(next, client, link + LINK.votes, number)
      },
    )
  }

  #confirm(state: State, client: number, node: number, token: number): void {
    const link = linkAt(this.shape, node, client)
    this.atNode(
      () => `confirm ${token} of c${client}`,
      state,
      node,
      (owner, fence) => this.steps.confirm({ owner, fence }, client, token),
      (next, { answer, number }) =>
        this.#answered(next, client, link + (answer === 'confirmed' ? LINK.votes : LINK.higher), number),
    )
  }

  protected override isVain({ answer }: Step): boolean {
    return answer === 'refused' || answer === 'no'
  }

  #answered(next: State, client: number, set: number, number: number): void {
    if (this.phase(next, client) !== PHASE.running) return
    next[set] = next[set]! | (1 << number)
    const asked = clientAt(this.shape, client) + ASKED
    next[asked] = next[asked]! | this.#decisions(next, client).asks
  }

  #decisions(state: State, client: number): { asks: number; wins: number } {
    const said: number[] = []
    for (let node = 0; node < this.shape.nodes; node++) {
      const link = linkAt(this.shape, node, client)
      said.push((state[link + LINK.votes]! << 16) | state[link + LINK.higher]!)
    }
    return this.#views.decisions(said, state[clientAt(this.shape, client) + ASKED]!)
  }

  protected override hears(state: State, client: number): void {
    const { wins } = this.#decisions(state, client)
    for (const token of numbersIn(wins)) {
      this.add(
        () => `c${client} has won with ${token}`,
        state,
        (next) => this.end(next, client, token),
        (next) => this.broken(next, client),
      )
    }
    if (this.configuration.ticket === true) {
      this.add(
        () => `c${client} wants no more`,
        state,
        (next) => this.end(next, client, 0),
      )
    }
  }

  protected override forget(next: State, client: number): void {
    for (let node = 0; node < this.shape.nodes; node++) {
      const link = linkAt(this.shape, node, client)
      next[link + LINK.votes] = 0
      next[link + LINK.higher] = 0
    }
  }

  protected override tidy(next: State): void {
    for (let client = 0; client < this.shape.clients; client++) {
      // Of a lease that was handed off the key matters.
      if (client === 0 && this.configuration.ticket === true) continue
      const phase = this.phase(next, client)
      if (phase === PHASE.running) this.#tidyRunning(next, client)
      else if (phase !== PHASE.idle) this.#tidyDecided(next, client)
    }
    if (!this.#isCrashAhead(next)) next[RUN.top] = 0
  }

  /**
   * A number that was asked for need not be known as one to ask for. This leans on the decision, to which such a number is no
   * vote; the exact clients do not.
   */
  #tidyRunning(next: State, client: number): void {
    const asked = next[clientAt(this.shape, client) + ASKED]!
    for (let node = 0; node < this.shape.nodes; node++) {
      const link = linkAt(this.shape, node, client)
      next[link + LINK.higher] = next[link + LINK.higher]! & ~asked & ~next[link + LINK.votes]!
    }
  }

  /**
   * Of a client that has decided only what can still lift a counter matters: numbers above one where it is, or may yet be, the
   * owner. A winner's key matters no more than that: the release lifts the counter of a free node as well.
   */
  #tidyDecided(next: State, client: number): void {
    const at = clientAt(this.shape, client)
    next[at + CLIENT.floor] = 0
    const asked = next[at + ASKED]!
    let useful = 0
    for (let node = 0; node < this.shape.nodes; node++) {
      const there = nodeAt(this.shape, node)
      const isOwner = next[there + NODE.owner] === client + 1
      const above = asked & ~((2 << next[there + NODE.fence]!) - 1)
      const mayOwn = isOwner || next[linkAt(this.shape, node, client) + LINK.granted] === 0 || next[RUN.duplicates]! > 0
      if (mayOwn) useful |= above
      const mayGiveBack = this.configuration.ticket === true && this.phase(next, client) === PHASE.lost
      if (isOwner && above === 0 && this.mayExpire(next, client) && !mayGiveBack) next[there + NODE.owner] = 0
    }
    next[at + ASKED] = useful
  }

  /** Only a crash asks for the highest number of all. */
  #isCrashAhead(state: State): boolean {
    if (state[RUN.crashes]! > 0) return true
    for (let node = 0; node < this.shape.nodes; node++) {
      if (state[nodeAt(this.shape, node) + NODE.status] === STATUS.sittingOut) return true
    }
    return false
  }
}

import type { NodeAnswer } from '../../src/engines/redis/votes.ts'
import type { Configuration } from './configuration.ts'
import { Decider, type Heard } from './decider.ts'
import { HEARD, LINK, LINK_WORDS, OWN, OWN_WORDS, REFUSED } from './exact-state.ts'
import { Model } from './model.ts'
import { clientAt, linkAt, numbersIn, PHASE, RUN, type State } from './state.ts'
import type { Step } from './steps.ts'

/** Clients as they are: every request and every answer on its way, what was heard, in which order, and nothing left out. */
export class Exact extends Model {
  readonly #decider: Decider

  constructor(configuration: Configuration) {
    super(configuration, { client: OWN_WORDS, link: LINK_WORDS })
    this.#decider = new Decider(this.shape)
  }

  protected override begin(state: State, client: number): void {
    this.add(
      () => `c${client} begins`,
      state,
      (next) => this.begun(next, client),
    )
  }

  protected override arrivals(state: State, client: number, node: number): void {
    this.#acquire(state, client, node)
    const link = linkAt(this.shape, node, client)
    const isRunning = this.phase(state, client) === PHASE.running
    const again = state[RUN.duplicates]! > 0 ? state[link + LINK.arrived]! : 0
    for (const token of numbersIn(state[link + LINK.sent]! | again)) {
      const bit = 1 << token
      const isSent = (state[link + LINK.sent]! & bit) !== 0
      this.atNode(
        () => `confirm ${token} of c${client}${isSent ? '' : ' again'}`,
        state,
        node,
        (owner, fence) => this.steps.confirm({ owner, fence }, client, token),
        (next, step) => {
          if (isSent) {
            next[link + LINK.sent] = next[link + LINK.sent]! & ~bit
            if (next[RUN.duplicates]! > 0) next[link + LINK.arrived] = next[link + LINK.arrived]! | bit
          } else this.#repeated(next)
          if (isRunning) answer(next, link, step)
        },
      )
    }
  }

  #acquire(state: State, client: number, node: number): void {
    const link = linkAt(this.shape, node, client)
    const isRunning = this.phase(state, client) === PHASE.running
    const arrive = (label: string, then: (next: State, step: Step) => void): void => {
      this.atNode(
        () => `acquire of c${client}${label}`,
        state,
        node,
        (owner, fence) => this.ask({ owner, fence }, client),
        then,
      )
    }
    if (state[link + LINK.delivered] === 0) {
      arrive('', (next, step) => {
        next[link + LINK.delivered] = 1
        if (isRunning) next[link + LINK.reply] = replyOf(step)
      })
    } else if (state[RUN.duplicates]! > 0) {
      const isOpen = isRunning && state[link + LINK.reply] !== 0
      arrive(' again', (next, step) => {
        this.#repeated(next)
        // The first answer was lost, or this one is: a driver hands out one.
        if (isOpen) next[link + LINK.reply] = replyOf(step)
      })
      if (isOpen) arrive(' again, unheard,', (next) => this.#repeated(next))
    }
  }

  /** Without a duplicate left nobody need remember what has arrived. */
  #repeated(next: State): void {
    next[RUN.duplicates] = next[RUN.duplicates]! - 1
    if (next[RUN.duplicates]! > 0) return
    for (let node = 0; node < this.shape.nodes; node++) {
      for (let client = 0; client < this.shape.clients; client++)
        next[linkAt(this.shape, node, client) + LINK.arrived] = 0
    }
  }

  protected override hears(state: State, client: number): void {
    for (let node = 0; node < this.shape.nodes; node++) {
      this.#answers(state, client, node)
      this.#failure(state, client, node)
    }
    this.#timeUp(state, client)
  }

  #answers(state: State, client: number, node: number): void {
    const link = linkAt(this.shape, node, client)
    const reply = state[link + LINK.reply]!
    if (reply !== 0) {
      const answer: NodeAnswer = reply === REFUSED ? { kind: 'out' } : { kind: 'granted', fence: reply }
      this.#hear(state, client, node, answer, (next) => (next[link + LINK.reply] = 0))
    }
    const heardOf = (set: number, answer: (number: number) => NodeAnswer): void => {
      for (const number of numbersIn(state[link + set]!)) {
        const taken = (next: State): void => void (next[link + set] = next[link + set]! & ~(1 << number))
        this.#hear(state, client, node, answer(number), taken)
      }
    }
    heardOf(LINK.yes, (token) => ({ kind: 'confirmed', token }))
    heardOf(LINK.higher, (fence) => ({ kind: 'higher', fence }))
    if (state[link + LINK.no] === 1)
      this.#hear(state, client, node, { kind: 'out' }, (next) => (next[link + LINK.no] = 0))
  }

  #hear(state: State, client: number, node: number, answer: NodeAnswer, taken: (next: State) => unknown): void {
    const text = (): string => `c${client} hears of n${node}: ${answer.kind}`
    const isLate = state[linkAt(this.shape, node, client) + LINK.heard] === HEARD.failed
    if (isLate) return this.add(text, state, taken)
    this.#apply(text, state, client, this.#decider.decide(state, client, node, [{ node, answer }]), taken)
  }

  /** A request that is under way fails, whether it has arrived or not. */
  #failure(state: State, client: number, node: number): void {
    const link = linkAt(this.shape, node, client)
    const heard = state[link + LINK.heard]!
    if (heard === HEARD.failed) return
    const isUnderWay = [LINK.sent, LINK.reply, LINK.yes, LINK.higher, LINK.no].some(
      (field) => state[link + field] !== 0,
    )
    if (heard !== HEARD.silent && !isUnderWay) return
    this.#apply(
      () => `request of c${client} to n${node} fails`,
      state,
      client,
      this.#decider.decide(state, client, node, [{ node, answer: { kind: 'out' } }]),
      () => undefined,
      (next) => (next[link + LINK.heard] = HEARD.failed),
    )
  }

  /** The time of every node that has not answered is up. */
  #timeUp(state: State, client: number): void {
    const failed: { node: number; answer: NodeAnswer }[] = []
    const confirming = state[clientAt(this.shape, client) + OWN.confirming]!
    for (let node = 0; node < this.shape.nodes; node++) {
      const link = linkAt(this.shape, node, client)
      const isAsked = state[link + LINK.asked] === 1 && (state[link + LINK.votes]! & (1 << confirming)) === 0
      const heard = state[link + LINK.heard]!
      if (heard === HEARD.silent || (heard === HEARD.ours && isAsked)) failed.push({ node, answer: { kind: 'out' } })
    }
    const { outcome } = this.#decider.decide(state, client, -1, failed)
    this.add(
      () => `time is up for c${client}`,
      state,
      (next) => this.end(next, client, typeof outcome === 'object' ? outcome.token : 0),
      (next) => this.broken(next, client),
    )
  }

  #apply(
    text: () => string,
    state: State,
    client: number,
    heard: Heard,
    taken: (next: State) => unknown,
    then: (next: State) => unknown = () => undefined,
  ): void {
    const { outcome } = heard
    const told =
      typeof outcome === 'object' ? ` and has won with ${outcome.token}` : outcome === 'lost' ? ' and gives up' : ''
    this.add(
      () => `${text()}${told}`,
      state,
      (next) => {
        taken(next)
        const at = clientAt(this.shape, client)
        next[at + OWN.confirming] = heard.confirming
        next[at + OWN.rounds] = heard.rounds
        for (const [node, column] of heard.columns.entries()) {
          const link = linkAt(this.shape, node, client)
          next[link + LINK.heard] = column.heard
          next[link + LINK.fence] = column.fence
          next[link + LINK.votes] = column.votes
          next[link + LINK.asked] = column.asked
          if (column.ask > 0) next[link + LINK.sent] = next[link + LINK.sent]! | (1 << column.ask)
        }
        then(next)
        if (outcome !== 'open') this.end(next, client, typeof outcome === 'object' ? outcome.token : 0)
      },
      (next) => (typeof outcome === 'object' ? this.broken(next, client) : undefined),
    )
  }

  protected override forget(next: State, client: number): void {
    const at = clientAt(this.shape, client)
    next[at + OWN.confirming] = 0
    next[at + OWN.rounds] = 0
    for (let node = 0; node < this.shape.nodes; node++) {
      const link = linkAt(this.shape, node, client)
      for (const field of [LINK.reply, LINK.heard, LINK.fence, LINK.votes, LINK.asked, LINK.yes, LINK.higher, LINK.no])
        next[link + field] = 0
    }
  }
}

function replyOf({ answer, number }: Step): number {
  return answer === 'granted' ? number : REFUSED
}

function answer(next: State, link: number, { answer, number }: Step): void {
  if (answer === 'confirmed') next[link + LINK.yes] = next[link + LINK.yes]! | (1 << number)
  else if (answer === 'higher') next[link + LINK.higher] = next[link + LINK.higher]! | (1 << number)
  else next[link + LINK.no] = 1
}

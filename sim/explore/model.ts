import type { Configuration } from './configuration.ts'
import { crashes } from './crashes.ts'
import {
  CLIENT,
  clientAt,
  MOST_NUMBER,
  NODE,
  nodeAt,
  PHASE,
  RUN,
  shapeOf,
  STATUS,
  type Shape,
  type State,
} from './state.ts'
import { Steps, type NodeState, type Step } from './steps.ts'

/** Sees a state that may follow, which is valid until it returns, and how it came to that. */
export type Visit = (next: State, broken: string | undefined, text: () => string) => void

/**
 * Everything that may happen next in a state: the nodes go by the shipped scripts, the clients by the shipped decision. What
 * is on its way between them, and what a client has heard, is for the two models to say.
 */
export abstract class Model {
  readonly shape: Shape
  protected readonly configuration: Configuration
  protected readonly steps: Steps
  readonly #next: State
  #visit: Visit = () => undefined

  constructor(configuration: Configuration, own: { client: number; link: number }) {
    this.configuration = configuration
    this.shape = shapeOf(configuration.nodes, configuration.proposals.length, own)
    this.steps = new Steps(configuration.quick)
    this.#next = new Uint16Array(this.shape.words)
  }

  start(): State {
    const state = new Uint16Array(this.shape.words)
    state[RUN.duplicates] = this.configuration.duplicates
    state[RUN.crashes] = this.configuration.crash === 'none' ? 0 : 1
    if (this.configuration.ticket === true) this.#handOff(state)
    return state
  }

  /** What client 0 has left may run out at any time, and is not held by anybody. */
  #handOff(state: State): void {
    const at = clientAt(this.shape, 0)
    state[at + CLIENT.phase] = PHASE.won
    state[at + CLIENT.token] = 1
    state[at + CLIENT.over] = 1
    state[RUN.top] = 1
    for (let node = 0; node < this.shape.nodes; node++) {
      state[nodeAt(this.shape, node) + NODE.owner] = 1
      state[nodeAt(this.shape, node) + NODE.fence] = 1
    }
  }

  /** The step by which a client asks for the lease. */
  protected ask(node: NodeState, client: number): Step {
    const proposal = this.configuration.proposals[client]!
    return this.configuration.ticket === true
      ? this.steps.handOver(node, client, proposal)
      : this.steps.acquire(node, client, proposal)
  }

  /** In the same order each time. */
  moves(state: State, visit: Visit): void {
    this.#visit = visit
    if (this.#isSettled(state)) return
    for (let client = 0; client < this.shape.clients; client++) {
      const phase = this.phase(state, client)
      if (phase === PHASE.idle) {
        this.begin(state, client)
        continue
      }
      for (let node = 0; node < this.shape.nodes; node++) {
        if (!this.isUp(state, node)) continue
        this.arrivals(state, client, node)
        if (phase === PHASE.won) this.#holds(state, client, node)
        if (phase === PHASE.lost && this.configuration.ticket === true) this.#givesBack(state, client, node)
      }
      if (phase === PHASE.running) this.hears(state, client)
      if (this.configuration.clocks === 'good' && phase !== PHASE.lost) this.#endOfValidity(state, client)
    }
    crashes(this.shape, this.configuration, state, (text, change) => this.add(text, state, change))
  }

  /** A client starts. */
  protected abstract begin(state: State, client: number): void
  /** A request of a client takes effect on a node. */
  protected abstract arrivals(state: State, client: number, node: number): void
  /** A client that has not decided hears of the nodes. */
  protected abstract hears(state: State, client: number): void
  /** Decided: what it has heard and will hear does not matter any more; what it has sent does. */
  protected abstract forget(next: State, client: number): void
  /** Does it do no more than a request that never arrives? */
  protected isVain(_step: Step): boolean {
    return false
  }
  /** Takes out what makes no difference. */
  protected tidy(_next: State): void {}

  protected phase(state: State, client: number): number {
    return state[clientAt(this.shape, client) + CLIENT.phase]!
  }

  protected isUp(state: State, node: number): boolean {
    return state[nodeAt(this.shape, node) + NODE.status] === STATUS.up
  }

  protected add(
    text: () => string,
    state: State,
    change: (next: State) => unknown,
    broken?: (next: State) => string | undefined,
  ): void {
    const next = this.#next
    next.set(state)
    change(next)
    const why = broken?.(next)
    this.tidy(next)
    this.#visit(next, why, text)
  }

  /** From here on its token must be above those that were given. */
  protected begun(next: State, client: number): void {
    const at = clientAt(this.shape, client)
    next[at + CLIENT.phase] = PHASE.running
    for (let other = 0; other < this.shape.clients; other++) {
      next[at + CLIENT.floor] = Math.max(next[at + CLIENT.floor]!, next[clientAt(this.shape, other) + CLIENT.token]!)
    }
  }

  /** A step on a node; right before, a key may expire that is in the way. */
  protected atNode(
    text: () => string,
    state: State,
    node: number,
    run: (owner: number, fence: number) => Step,
    then: (next: State, step: Step) => void = () => undefined,
  ): void {
    const at = nodeAt(this.shape, node)
    const apply = (owner: number, label: () => string): void => {
      const step = run(owner, state[at + NODE.fence]!)
      if (this.isVain(step)) return
      if (step.fence > MOST_NUMBER) throw new Error(`numbers above ${MOST_NUMBER} are not explored`)
      this.add(
        () => `${label()}${text()} at n${node}: ${step.answer}${step.number > 0 ? ` ${step.number}` : ''}`,
        state,
        (next) => {
          next[at + NODE.owner] = step.owner
          next[at + NODE.fence] = step.fence
          next[RUN.top] = Math.max(next[RUN.top]!, step.fence)
          then(next, step)
        },
      )
    }
    const owner = state[at + NODE.owner]!
    apply(owner, () => '')
    if (owner > 0 && this.mayExpire(state, owner - 1)) apply(0, () => `key of c${owner - 1} expires, then `)
  }

  /** Also stands for the release of an attempt that failed: it only deletes the key. */
  protected mayExpire(state: State, client: number): boolean {
    const isOver = state[clientAt(this.shape, client) + CLIENT.over] === 1
    return this.configuration.clocks === 'any' || isOver || this.phase(state, client) === PHASE.lost
  }

  protected end(next: State, client: number, token: number): void {
    const at = clientAt(this.shape, client)
    // Validity is looked at last: a grant that comes too late is given back.
    const isWon = token > 0 && next[at + CLIENT.over] === 0
    next[at + CLIENT.phase] = isWon ? PHASE.won : PHASE.lost
    next[at + CLIENT.token] = isWon ? token : 0
    this.forget(next, client)
  }

  /** Unique, and greater than the token of every client that had won before it began; and with good clocks, alone. */
  protected broken(next: State, client: number): string | undefined {
    const at = clientAt(this.shape, client)
    if (next[at + CLIENT.phase] !== PHASE.won) return undefined
    const token = next[at + CLIENT.token]!
    if (token <= next[at + CLIENT.floor]!)
      return `c${client} got ${token} after ${next[at + CLIENT.floor]} had been given`
    for (let other = 0; other < this.shape.clients; other++) {
      const there = clientAt(this.shape, other)
      if (other === client || next[there + CLIENT.phase] !== PHASE.won) continue
      if (next[there + CLIENT.token] === token) return `c${client} and c${other} both got ${token}`
      if (this.configuration.clocks === 'good' && next[there + CLIENT.over] === 0)
        return `c${client} and c${other} hold it at once`
    }
    return undefined
  }

  /** Nobody is left who could get a token. */
  #isSettled(state: State): boolean {
    for (let client = 0; client < this.shape.clients; client++) if (this.phase(state, client) < PHASE.won) return false
    return true
  }

  /** Renewals and the release of a winner lift the counter; both may come whenever and as often as they like. */
  #holds(state: State, client: number, node: number): void {
    const at = clientAt(this.shape, client)
    const token = state[at + CLIENT.token]!
    if (state[nodeAt(this.shape, node) + NODE.owner] === client + 1) {
      this.atNode(
        () => `extend of c${client}`,
        state,
        node,
        (owner, fence) => this.steps.extend({ owner, fence }, client, token),
      )
    }
    this.atNode(
      () => `release of c${client}`,
      state,
      node,
      (owner, fence) => this.steps.release({ owner, fence }, client, token),
      (next) => {
        // A client that releases does not hold any more.
        if (this.configuration.clocks === 'good') next[at + CLIENT.over] = 1
      },
    )
  }

  /** An adoption whose outcome is unknown. */
  #givesBack(state: State, client: number, node: number): void {
    if (state[nodeAt(this.shape, node) + NODE.owner] !== client + 1) return
    const proposal = this.configuration.proposals[client]!
    this.atNode(
      () => `c${client} gives back`,
      state,
      node,
      (owner, fence) => this.steps.giveBack({ owner, fence }, client, proposal),
    )
  }

  #endOfValidity(state: State, client: number): void {
    const over = clientAt(this.shape, client) + CLIENT.over
    if (state[over] === 1) return
    this.add(
      () => `validity of c${client} is over`,
      state,
      (next) => (next[over] = 1),
    )
  }
}

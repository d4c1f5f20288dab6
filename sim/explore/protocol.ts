import type { NodeAnswer } from '../../src/engines/redis/votes.ts'
import { crashes } from './crashes.ts'
import { Decider, type Heard } from './decider.ts'
import type { Configuration } from './explore.ts'
import {
  CLIENT,
  clientAt,
  HEARD,
  LINK,
  linkAt,
  NODE,
  nodeAt,
  PHASE,
  REFUSED,
  RUN,
  STATUS,
  type Shape,
} from './state.ts'
import type { Step, Steps } from './steps.ts'

/** Sees a state that may follow, which is valid until it returns, and how it came to that. */
export type Visit = (next: Uint8Array, broken: string | undefined, text: () => string) => void

/** Everything that may happen next in a state: the nodes by the shipped scripts, the clients by the shipped decision. */
export class Protocol {
  readonly #shape: Shape
  readonly #configuration: Configuration
  readonly #steps: Steps
  readonly #decider: Decider
  readonly #next: Uint8Array
  #visit: Visit = () => undefined

  constructor(shape: Shape, configuration: Configuration, steps: Steps) {
    this.#shape = shape
    this.#configuration = configuration
    this.#steps = steps
    this.#decider = new Decider(shape)
    this.#next = new Uint8Array(shape.bytes)
  }

  start(): Uint8Array {
    const state = new Uint8Array(this.#shape.bytes)
    state[RUN.duplicates] = this.#configuration.duplicates
    state[RUN.crashes] = this.#configuration.crash === 'none' ? 0 : 1
    return state
  }

  /** In the same order each time. */
  moves(state: Uint8Array, visit: Visit): void {
    this.#visit = visit
    for (let client = 0; client < this.#shape.clients; client++) {
      const phase = state[clientAt(client) + CLIENT.phase]!
      if (phase === PHASE.idle) {
        this.#begin(state, client)
        continue
      }
      for (let node = 0; node < this.#shape.nodes; node++) {
        if (state[nodeAt(this.#shape, node) + NODE.status] === STATUS.up) this.#arrivals(state, client, node, phase)
        if (phase === PHASE.running) this.#answers(state, client, node)
      }
      if (phase === PHASE.running && !this.#configuration.reduced) this.#timeUp(state, client)
      if (
        this.#configuration.clocks === 'good' &&
        phase !== PHASE.lost &&
        state[clientAt(client) + CLIENT.over] === 0
      ) {
        this.#add(
          () => `validity of c${client} is over`,
          state,
          (next) => (next[clientAt(client) + CLIENT.over] = 1),
        )
      }
    }
    crashes(this.#shape, this.#configuration, state, (text, change) => this.#add(text, state, change))
  }

  #add(
    text: () => string,
    state: Uint8Array,
    change: (next: Uint8Array) => unknown,
    broken?: (next: Uint8Array) => string | undefined,
  ): void {
    const next = this.#next
    next.set(state)
    change(next)
    this.#visit(next, broken?.(next), text)
  }

  #begin(state: Uint8Array, client: number): void {
    this.#add(
      () => `c${client} begins`,
      state,
      (next) => {
        const at = clientAt(client)
        next[at + CLIENT.phase] = PHASE.running
        for (let other = 0; other < this.#shape.clients; other++) {
          next[at + CLIENT.floor] = Math.max(next[at + CLIENT.floor]!, next[clientAt(other) + CLIENT.token]!)
        }
      },
    )
  }

  /** Requests take effect; right before, a key may expire that is in the way. */
  #arrivals(state: Uint8Array, client: number, node: number, phase: number): void {
    const link = linkAt(this.#shape, node, client)
    const isRunning = phase === PHASE.running
    const proposal = this.#configuration.proposals[client]!
    const mayRepeat = state[RUN.duplicates]! > 0
    if (state[link + LINK.delivered] === 0) {
      this.#atNode(
        () => `acquire of c${client}`,
        state,
        node,
        (owner, fence) => this.#steps.acquire({ owner, fence }, client, proposal),
        (next, step) => {
          next[link + LINK.delivered] = 1
          if (isRunning) next[link + LINK.reply] = this.#replyOf(step)
        },
      )
    } else if (mayRepeat) {
      this.#atNode(
        () => `acquire of c${client} again`,
        state,
        node,
        (owner, fence) => this.#steps.acquire({ owner, fence }, client, proposal),
        (next, step) => {
          next[RUN.duplicates] = next[RUN.duplicates]! - 1
          // The first answer was lost, or this one is: a driver hands out one.
          if (isRunning && next[link + LINK.reply] !== 0) next[link + LINK.reply] = this.#replyOf(step)
        },
      )
      if (isRunning && state[link + LINK.reply] !== 0) {
        this.#atNode(
          () => `acquire of c${client} again, unheard,`,
          state,
          node,
          (owner, fence) => this.#steps.acquire({ owner, fence }, client, proposal),
          (next) => {
            next[RUN.duplicates] = next[RUN.duplicates]! - 1
          },
        )
      }
    }
    for (let token = 1; token < 8; token++) {
      const bit = 1 << token
      const isSent = (state[link + LINK.sent]! & bit) !== 0
      if (!isSent && !(mayRepeat && (state[link + LINK.arrived]! & bit) !== 0)) continue
      const text = (): string => `confirm ${token} of c${client}${isSent ? '' : ' again'}`
      this.#atNode(
        text,
        state,
        node,
        (owner, fence) => this.#steps.confirm({ owner, fence }, client, token),
        (next, step) => {
          if (isSent) {
            next[link + LINK.sent] = next[link + LINK.sent]! & ~bit
            if (next[RUN.duplicates]! > 0) next[link + LINK.arrived] = next[link + LINK.arrived]! | bit
          } else next[RUN.duplicates] = next[RUN.duplicates]! - 1
          if (isRunning) this.#reply(next, link, step)
        },
      )
    }
    if (phase === PHASE.won) {
      const token = state[clientAt(client) + CLIENT.token]!
      const owner = state[nodeAt(this.#shape, node) + NODE.owner]!
      // Renewals and the release of a winner lift the counter; both may come whenever and as often as they like.
      if (owner === client + 1)
        this.#atNode(
          () => `extend of c${client}`,
          state,
          node,
          (o, fence) => this.#steps.extend({ owner: o, fence }, client, token),
        )
      if (owner === client + 1 || owner === 0) {
        this.#atNode(
          () => `release of c${client}`,
          state,
          node,
          (o, fence) => this.#steps.release({ owner: o, fence }, client, token),
          (next) => {
            // Who releases does not hold any more.
            if (this.#configuration.clocks === 'good') next[clientAt(client) + CLIENT.over] = 1
          },
        )
      }
    }
  }

  #replyOf({ answer, number }: Step): number {
    if (answer === 'granted') return number
    return this.#configuration.reduced ? 0 : REFUSED
  }

  #reply(next: Uint8Array, link: number, { answer, number }: Step): void {
    if (answer === 'confirmed') next[link + LINK.yes] = next[link + LINK.yes]! | (1 << number)
    else if (answer === 'higher') next[link + LINK.higher] = next[link + LINK.higher]! | (1 << number)
    else next[link + LINK.no] = 1
  }

  #atNode(
    text: () => string,
    state: Uint8Array,
    node: number,
    run: (owner: number, fence: number) => Step,
    then: (next: Uint8Array, step: Step) => void = () => undefined,
  ): void {
    const at = nodeAt(this.#shape, node)
    const owner = state[at + NODE.owner]!
    const apply = (owner: number, label: () => string): void => {
      const step = run(owner, state[at + NODE.fence]!)
      if (step.fence > 7) throw new Error('numbers of 8 and more are not explored')
      this.#add(
        () => `${label()}${text()} at n${node}: ${step.answer}${step.number > 0 ? ` ${step.number}` : ''}`,
        state,
        (next) => {
          next[at + NODE.owner] = step.owner
          next[at + NODE.fence] = step.fence
          next[RUN.top] = Math.max(next[RUN.top]!, step.fence)
          then(next, step)
          if (next[RUN.duplicates] === 0 && state[RUN.duplicates]! > 0) this.#forgetArrivals(next)
        },
      )
    }
    apply(owner, () => '')
    if (owner > 0 && this.#mayExpire(state, owner - 1)) apply(0, () => `key of c${owner - 1} expires, then `)
  }

  /** Also stands for the release of an attempt that failed: it only deletes the key. */
  #mayExpire(state: Uint8Array, client: number): boolean {
    const at = clientAt(client)
    return (
      this.#configuration.clocks === 'any' || state[at + CLIENT.over] === 1 || state[at + CLIENT.phase] === PHASE.lost
    )
  }

  /** Without a duplicate left nobody need remember what has arrived. */
  #forgetArrivals(next: Uint8Array): void {
    for (let node = 0; node < this.#shape.nodes; node++) {
      for (let client = 0; client < this.#shape.clients; client++)
        next[linkAt(this.#shape, node, client) + LINK.arrived] = 0
    }
  }

  #answers(state: Uint8Array, client: number, node: number): void {
    const link = linkAt(this.#shape, node, client)
    const reply = state[link + LINK.reply]!
    if (reply !== 0) {
      const answer: NodeAnswer = reply === REFUSED ? { kind: 'out' } : { kind: 'granted', fence: reply }
      this.#hear(state, client, node, answer, (next) => (next[link + LINK.reply] = 0))
    }
    for (let number = 1; number < 8; number++) {
      const bit = 1 << number
      if (state[link + LINK.yes]! & bit) {
        this.#hear(
          state,
          client,
          node,
          { kind: 'confirmed', token: number },
          (next) => (next[link + LINK.yes] = next[link + LINK.yes]! & ~bit),
        )
      }
      if (state[link + LINK.higher]! & bit) {
        this.#hear(
          state,
          client,
          node,
          { kind: 'higher', fence: number },
          (next) => (next[link + LINK.higher] = next[link + LINK.higher]! & ~bit),
        )
      }
    }
    if (state[link + LINK.no] === 1)
      this.#hear(state, client, node, { kind: 'out' }, (next) => (next[link + LINK.no] = 0))
  }

  #hear(
    state: Uint8Array,
    client: number,
    node: number,
    answer: NodeAnswer,
    taken: (next: Uint8Array) => unknown,
  ): void {
    const text = (): string => `c${client} hears of n${node}: ${answer.kind}`
    const isLate = state[linkAt(this.#shape, node, client) + LINK.heard] === HEARD.failed
    if (isLate) return this.#add(text, state, taken)
    const heard = this.#decider.decide(state, client, node, [{ node, answer }])
    if (heard.outcome === 'lost' && this.#configuration.reduced) return
    this.#apply(text, state, client, heard, taken)
  }

  /** The time of every node that has not answered is up. */
  #timeUp(state: Uint8Array, client: number): void {
    const failed: { node: number; answer: NodeAnswer }[] = []
    const confirming = state[clientAt(client) + CLIENT.confirming]!
    for (let node = 0; node < this.#shape.nodes; node++) {
      const link = linkAt(this.#shape, node, client)
      const isAsked = state[link + LINK.asked] === 1 && (state[link + LINK.votes]! & (1 << confirming)) === 0
      const heard = state[link + LINK.heard]!
      if (heard === HEARD.silent || (heard === HEARD.ours && isAsked)) failed.push({ node, answer: { kind: 'out' } })
    }
    const { outcome } = this.#decider.decide(state, client, -1, failed)
    this.#add(
      () => `time is up for c${client}`,
      state,
      (next) => this.#end(next, client, typeof outcome === 'object' ? outcome.token : 0),
      (next) => this.#broken(next, client),
    )
  }

  #apply(
    text: () => string,
    state: Uint8Array,
    client: number,
    heard: Heard,
    taken: (next: Uint8Array) => unknown,
  ): void {
    const { outcome } = heard
    const told =
      typeof outcome === 'object' ? ` and has won with ${outcome.token}` : outcome === 'lost' ? ' and gives up' : ''
    this.#add(
      () => `${text()}${told}`,
      state,
      (next) => {
        taken(next)
        next[clientAt(client) + CLIENT.confirming] = heard.confirming
        next[clientAt(client) + CLIENT.rounds] = heard.rounds
        for (const [node, column] of heard.columns.entries()) {
          const link = linkAt(this.#shape, node, client)
          next[link + LINK.heard] = column.heard
          next[link + LINK.fence] = column.fence
          next[link + LINK.votes] = column.votes
          next[link + LINK.asked] = column.asked
          if (column.ask > 0) next[link + LINK.sent] = next[link + LINK.sent]! | (1 << column.ask)
        }
        if (outcome !== 'open') this.#end(next, client, typeof outcome === 'object' ? outcome.token : 0)
      },
      (next) => (typeof outcome === 'object' ? this.#broken(next, client) : undefined),
    )
  }

  /** Decided: what it has heard and will hear does not matter any more; what it has sent does. */
  #end(next: Uint8Array, client: number, token: number): void {
    const at = clientAt(client)
    // Validity is looked at last: a grant that comes too late is given back.
    const isWon = token > 0 && next[at + CLIENT.over] === 0
    next[at + CLIENT.phase] = isWon ? PHASE.won : PHASE.lost
    next[at + CLIENT.token] = isWon ? token : 0
    next[at + CLIENT.confirming] = 0
    next[at + CLIENT.rounds] = 0
    for (let node = 0; node < this.#shape.nodes; node++) {
      const link = linkAt(this.#shape, node, client)
      for (const field of [LINK.reply, LINK.heard, LINK.fence, LINK.votes, LINK.asked, LINK.yes, LINK.higher, LINK.no])
        next[link + field] = 0
    }
  }

  /** Unique, greater than that of whoever had won before it began; and with good clocks, alone. */
  #broken(next: Uint8Array, client: number): string | undefined {
    const at = clientAt(client)
    if (next[at + CLIENT.phase] !== PHASE.won) return undefined
    const token = next[at + CLIENT.token]!
    if (token <= next[at + CLIENT.floor]!)
      return `c${client} got ${token} after ${next[at + CLIENT.floor]} had been given`
    for (let other = 0; other < this.#shape.clients; other++) {
      const there = clientAt(other)
      if (other === client || next[there + CLIENT.phase] !== PHASE.won) continue
      if (next[there + CLIENT.token] === token) return `c${client} and c${other} both got ${token}`
      if (this.#configuration.clocks === 'good' && next[there + CLIENT.over] === 0)
        return `c${client} and c${other} hold it at once`
    }
    return undefined
  }
}

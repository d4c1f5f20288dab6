import { left, mixed, right } from '../fingerprint.ts'
import { exploreAll, type Explorable, type Explored, type Fingerprints, type Limits } from '../explore.ts'
import type { Visit } from '../model.ts'
import { numbersIn, type State } from '../state.ts'
import { OneNodeSteps, type Command, type Node } from './steps.ts'

export interface OneNodeConfiguration {
  /** Of each client, the resources that it wants all or none of. */
  readonly wants: readonly (readonly number[])[]
  /** Numbers are at most this. */
  readonly most: number
  readonly clocks: 'any' | 'good'
  /** A client may take over from another whose lease is over here. */
  readonly handOver: boolean
  /** The node may forget everything, as often as it likes; then it sits out, or, which is wrong, does not. */
  readonly crash: 'none' | 'sit-out' | 'at once' | 'late'
  /** Makes wrong scripts. */
  readonly change?: (text: string) => string
}

export const RUN = { out: 0, top: 1 } as const
const RUN_WORDS = 2
export const CLIENT = { phase: 0, over: 1, begunAtCrash: 2, floor: 3, token: 4, votes: 5 } as const
export const CLIENT_WORDS = 6
const PHASE = { idle: 0, running: 1, won: 2, lost: 3 } as const

/**
 * One node, and everything that clients may ever ask of it: any step, with any number, in any order, as often as they like, from when they have
 * begun, also after they have decided. A client may win with every number that this node has voted for it.
 *
 * Two quorums share a node, and who wins has the votes of a quorum for its token. So two leases of which one breaks a promise to the other
 * have a node in common that has voted for both tokens; what happened on that node is a way through this model, and it ends with a
 * promise broken here. What holds here holds for every number of nodes.
 */
export class OneNode implements Explorable, Fingerprints {
  a = 0
  b = 0
  readonly #one: OneNodeConfiguration
  readonly #steps: OneNodeSteps
  readonly #clients: number
  readonly #resources: number
  readonly #next: State
  #visit: Visit = () => undefined

  constructor(one: OneNodeConfiguration) {
    this.#one = one
    this.#steps = new OneNodeSteps(one.wants, one.change)
    this.#clients = one.wants.length
    this.#resources = Math.max(...one.wants.flat()) + 1
    this.#next = this.start()
  }

  start(): State {
    return new Uint16Array(RUN_WORDS + this.#clients * CLIENT_WORDS + 2 * this.#resources)
  }

  moves(state: State, visit: Visit): void {
    this.events(state, visit)
    for (let client = 0; client < this.#clients; client++) {
      for (let number = 1; number <= this.#one.most; number++) {
        for (const kind of ['acquire', 'confirm', 'extend', 'release'] as const)
          this.command(state, { kind, client, number }, visit)
        for (let from = 0; from < this.#clients; from++)
          this.command(state, { kind: 'handOver', client, number, from }, visit)
      }
      this.command(state, { kind: 'release', client, number: 0 }, visit)
    }
  }

  /** What may happen next, but for the commands. */
  events(state: State, visit: Visit): void {
    this.#visit = visit
    for (let client = 0; client < this.#clients; client++) {
      if (state[at(client) + CLIENT.phase] === PHASE.idle) this.#begin(state, client)
      else this.#decides(state, client)
    }
    this.#ends(state)
    this.#crash(state)
  }

  /** A command, where it may come. */
  command(state: State, command: Command, visit: Visit): void {
    this.#visit = visit
    const mayCome = command.kind !== 'handOver' || this.#mayTakeOver(state, command.client, command.from)
    if (state[RUN.out] === 0 && state[at(command.client) + CLIENT.phase] !== PHASE.idle && mayCome)
      this.#step(state, command)
  }

  /** From a client that wants the same, and holds it no more. */
  #mayTakeOver(state: State, client: number, from: number): boolean {
    const isOther = from !== client && this.#one.wants[from]!.join() === this.#one.wants[client]!.join()
    return this.#one.handOver && isOther && this.#isPast(state, from)
  }

  #begin(state: State, client: number): void {
    this.#add(
      () => `c${client} begins`,
      state,
      (next) => {
        next[at(client) + CLIENT.phase] = PHASE.running
        for (let other = 0; other < this.#clients; other++)
          if (this.#isRival(client, other))
            next[at(client) + CLIENT.floor] = Math.max(
              next[at(client) + CLIENT.floor]!,
              next[at(other) + CLIENT.token]!,
            )
      },
    )
  }

  #step(state: State, command: Command): void {
    const { client, kind, number } = command
    const before = this.#node(state)
    const after = this.#steps.run(before, command)
    if (after.fences.some((fence) => fence > this.#one.most)) return
    const isSame = after.owners.every(
      (owner, of) => owner === before.owners[of] && after.fences[of] === before.fences[of],
    )
    const isRunning = state[at(client) + CLIENT.phase] === PHASE.running
    // What changes nothing, and tells nothing new.
    const isNews = isRunning && after.vote > 0 && ((state[at(client) + CLIENT.votes]! >> after.vote) & 1) === 0
    if (isSame && !isNews) return
    this.#add(
      () => `${kind} ${number} of c${client}${command.kind === 'handOver' ? ` from c${command.from}` : ''}`,
      state,
      (next) => {
        this.#put(next, after)
        if (isNews) next[at(client) + CLIENT.votes] = next[at(client) + CLIENT.votes]! | (1 << after.vote)
        // A client that releases does not hold any more, or has given up.
        if (kind === 'release') this.#leave(next, client)
      },
    )
  }

  #leave(next: State, client: number): void {
    if (next[at(client) + CLIENT.phase] === PHASE.won) next[at(client) + CLIENT.over] = 1
    else this.#decide(next, client, PHASE.lost, 0)
  }

  #decides(state: State, client: number): void {
    const [phase, over] = [state[at(client) + CLIENT.phase], state[at(client) + CLIENT.over]]
    if (phase === PHASE.running) {
      for (const token of over === 1 ? [] : numbersIn(state[at(client) + CLIENT.votes]!))
        this.#add(
          () => `c${client} has won with ${token}`,
          state,
          (next) => this.#decide(next, client, PHASE.won, token),
          this.#broken(state, client, token),
        )
      this.#add(
        () => `c${client} gives up`,
        state,
        (next) => this.#decide(next, client, PHASE.lost, 0),
      )
    }
    if (phase === PHASE.won && over === 0)
      this.#add(
        () => `validity of c${client} is over`,
        state,
        (next) => (next[at(client) + CLIENT.over] = 1),
      )
  }

  #decide(next: State, client: number, phase: number, token: number): void {
    next[at(client) + CLIENT.phase] = phase
    next[at(client) + CLIENT.token] = token
    next[at(client) + CLIENT.floor] = 0
    next[at(client) + CLIENT.votes] = 0
  }

  #broken(state: State, client: number, token: number): string | undefined {
    const floor = state[at(client) + CLIENT.floor]!
    if (token <= floor) return `c${client} got ${token} after ${floor} had been given`
    for (let other = 0; other < this.#clients; other++) {
      if (!this.#isRival(client, other) || state[at(other) + CLIENT.phase] !== PHASE.won) continue
      if (state[at(other) + CLIENT.token] === token) return `c${client} and c${other} both got ${token}`
      if (this.#one.clocks === 'good' && state[at(other) + CLIENT.over] === 0)
        return `c${client} and c${other} hold it at once`
    }
    return undefined
  }

  #isRival(client: number, other: number): boolean {
    return other !== client && this.#one.wants[client]!.some((resource) => this.#one.wants[other]!.includes(resource))
  }

  /** It holds nothing, and never will. */
  #isPast(state: State, client: number): boolean {
    return state[at(client) + CLIENT.over] === 1 || state[at(client) + CLIENT.phase] === PHASE.lost
  }

  /** Each key by itself. */
  #ends(state: State): void {
    const { owners } = this.#node(state)
    for (const [resource, owner] of owners.entries()) {
      if (owner === 0 || (this.#one.clocks === 'good' && !this.#isPast(state, owner - 1))) continue
      this.#add(
        () => `key ${resource} of c${owner - 1} expires`,
        state,
        (next) => (next[this.#owner(resource)] = 0),
      )
    }
  }

  #crash(state: State): void {
    const { crash, clocks, most } = this.#one
    if (crash === 'none') return
    if (state[RUN.out] === 0) {
      this.#add(
        () => 'the node forgets',
        state,
        (next) => {
          const fence = crash === 'at once' ? next[RUN.top]! : 0
          for (let resource = 0; resource < this.#resources; resource++) {
            next[this.#owner(resource)] = 0
            next[this.#fence(resource)] = fence
          }
          if (crash === 'at once') return
          next[RUN.out] = 1
          for (let client = 0; client < this.#clients; client++)
            next[at(client) + CLIENT.begunAtCrash] = next[at(client) + CLIENT.phase] === PHASE.idle ? 0 : 1
        },
      )
      return
    }
    for (let client = 0; client < this.#clients; client++) {
      const isWaitedFor = clocks === 'good' && state[at(client) + CLIENT.begunAtCrash] === 1
      if (isWaitedFor && !this.#isPast(state, client)) return
    }
    for (let fence = crash === 'late' ? 0 : state[RUN.top]!; fence <= most; fence++)
      this.#add(
        () => `the node votes again, from ${fence}`,
        state,
        (next) => {
          next[RUN.out] = 0
          for (let client = 0; client < this.#clients; client++) next[at(client) + CLIENT.begunAtCrash] = 0
          for (let resource = 0; resource < this.#resources; resource++) next[this.#fence(resource)] = fence
          next[RUN.top] = Math.max(next[RUN.top]!, fence)
        },
      )
  }

  #add(text: () => string, state: State, change: (next: State) => unknown, broken?: string): void {
    this.#next.set(state)
    change(this.#next)
    this.#visit(this.#next, broken, text)
  }

  #owner(resource: number): number {
    return at(this.#clients) + 2 * resource
  }

  #fence(resource: number): number {
    return at(this.#clients) + 2 * resource + 1
  }

  #node(state: State): Node {
    const resources = Array.from({ length: this.#resources }, (_, resource) => resource)
    return {
      owners: resources.map((resource) => state[this.#owner(resource)]!),
      fences: resources.map((resource) => state[this.#fence(resource)]!),
    }
  }

  #put(next: State, { owners, fences }: Node): void {
    for (const [resource, owner] of owners.entries()) {
      next[this.#owner(resource)] = owner
      next[this.#fence(resource)] = fences[resource]!
    }
    // Only a crash asks for the highest number of all.
    if (this.#one.crash !== 'none') next[RUN.top] = Math.max(next[RUN.top]!, ...fences)
  }

  /** The same for states that differ only in the names of clients which want the same. */
  of(state: State): void {
    let a = left(left(0x811c9dc5, state[RUN.out]!), state[RUN.top]!)
    let b = right(right(0x9e3779b9, state[RUN.out]!), state[RUN.top]!)
    for (let resource = 0; resource < this.#resources; resource++) {
      a = left(a, state[this.#fence(resource)]!)
      b = right(b, state[this.#fence(resource)]!)
    }
    let sumA = 0
    let sumB = 0
    for (let client = 0; client < this.#clients; client++) {
      const kind = this.#one.wants.findIndex((wants) => wants.join() === this.#one.wants[client]!.join())
      let ownA = left(0x2545f491, kind)
      let ownB = right(0x85157af5, kind)
      for (let word = at(client); word < at(client + 1); word++) {
        ownA = left(ownA, state[word]!)
        ownB = right(ownB, state[word]!)
      }
      for (let resource = 0; resource < this.#resources; resource++) {
        const isOwner = state[this.#owner(resource)] === client + 1 ? 1 : 0
        ownA = left(ownA, isOwner)
        ownB = right(ownB, isOwner)
      }
      sumA = (sumA + mixed(ownA)) | 0
      sumB = (sumB + mixed(ownB)) | 0
    }
    this.a = mixed(left(a, sumA))
    this.b = mixed(right(b, sumB))
  }
}

/** Where a client is in a state of one node; behind the last one are the owner and the counter of each resource. */
export function at(client: number): number {
  return RUN_WORDS + client * CLIENT_WORDS
}

export function exploreOneNode(one: OneNodeConfiguration, limits: Limits = {}): Explored {
  const model = new OneNode(one)
  return exploreAll(model, model, limits)
}

import { quorumOf } from '../../../src/engines/redis/votes.ts'
import type { Configuration } from '../configuration.ts'
import { Exact } from '../exact.ts'
import { exploreAll, type Explorable, type Explored, type Limits } from '../explore.ts'
import { Fingerprint } from '../fingerprint.ts'
import { Loose } from '../loose.ts'
import type { Model, Visit } from '../model.ts'
import {
  CLIENT,
  CLIENT_WORDS,
  clientAt,
  linkAt,
  MOST_NUMBER,
  NODE,
  nodeAt,
  PHASE,
  shapeOf,
  type Shape,
  type State,
} from '../state.ts'
import { at, CLIENT as ONE, CLIENT_WORDS as ONE_WORDS, OneNode, RUN as ONE_RUN } from './model.ts'
import type { Command } from './steps.ts'

/** Whether each node of several goes a way through the model of one node, and every promise can be seen on one of them. */
export function project(configuration: Configuration, limits: Limits = {}, many?: Model, one?: OneNode): Explored {
  const projection = new Projection(configuration, many, one)
  return exploreAll(projection, new Fingerprint(projection.shape, configuration.proposals), limits)
}

/** The model of one node for the same clients. */
function oneNodeOf({ proposals, clocks, crash, ticket = false }: Configuration): OneNode {
  if (crash !== 'none' && crash !== 'sit-out' && crash !== 'late') throw new Error(`one node has no crash '${crash}'`)
  const wants = proposals.map(() => [0])
  return new OneNode({ wants, most: MOST_NUMBER, clocks, handOver: ticket, crash })
}

/** Between a client and a node, behind what is the model's: what one node has of the client, and its highest number. */
const TOP = ONE_WORDS
const OWN_WORDS = ONE_WORDS + 1

/**
 * Several nodes and, beside each of them, the model of one node that follows. Whatever happens, each must have steps that lead
 * to the same lock and the same counter; what happens on another node is none. A client that wins with a number has won it
 * on every node that voted for the number, and has given up on the others. These must be a quorum, and with
 * everyone who has won before share a node that says the same of both: whether the other holds, and which token is too low. So a
 * promise that is broken among several nodes is broken on one, and that is looked at, too.
 */
class Projection implements Explorable {
  readonly shape: Shape
  readonly #configuration: Configuration
  readonly #many: Model
  readonly #one: Followed

  constructor(configuration: Configuration, many = modelOf(configuration), one = oneNodeOf(configuration)) {
    this.#configuration = configuration
    this.#many = many
    this.#one = new Followed(one)
    const { nodes, clients, client, link } = many.shape
    this.shape = shapeOf(nodes, clients, { client: client - CLIENT_WORDS, link: link + OWN_WORDS })
  }

  start(): State {
    const many = this.#many.start()
    const pair = new Uint16Array(this.shape.words)
    const ones = Array.from({ length: this.shape.nodes }, () => this.#handedOff())
    this.#pack(many, ones, pair)
    return pair
  }

  /** Client 0 has had the lease, if there is a ticket. */
  #handedOff(): State {
    const one = this.#one.start()
    if (this.#configuration.ticket !== true) return one
    const { state } = new Way(this.#one, one)
      .event('c0 begins')
      .command({ kind: 'acquire', client: 0, number: 1 })
      .event('c0 has won with 1')
      .event('validity of c0 is over')
    return state
  }

  moves(pair: State, visit: Visit): void {
    const { many, ones } = this.#unpack(pair)
    const next = new Uint16Array(this.shape.words)
    this.#many.moves(many, (state, broken, text) => {
      const ways = ones.map((one, node) => this.#follow(one, node, text(), many, state))
      const why = this.#wrong(ways, many, state, text(), broken)
      this.#pack(
        state,
        ways.map((way) => way.state),
        next,
      )
      visit(next, why, text)
    })
  }

  /** The way of one node while something happens among several. */
  #follow(one: State, node: number, text: string, before: State, after: State): Way {
    const { shape } = this.#many
    const way = new Way(this.#one, one)
    for (let client = 0; client < shape.clients; client++)
      if (this.#phase(before, client) === PHASE.idle && this.#phase(after, client) !== PHASE.idle)
        way.event(`c${client} begins`)
    const { where, expired, what } = happeningOf(text)
    if (where === node) {
      if (expired !== undefined) way.event(`key 0 of c${expired} expires`)
      this.#happens(way, what, before, after[nodeAt(shape, node) + NODE.fence]!)
    }
    for (let client = 0; client < shape.clients; client++) this.#decides(way, client, after)
    const owner = after[nodeAt(shape, node) + NODE.owner]!
    // The loose clients leave keys out that may expire and make no difference.
    if (owner === 0) for (let client = 0; client < shape.clients; client++) way.event(`key 0 of c${client} expires`)
    return way
  }

  /** Something happens on this very node. */
  #happens(way: Way, what: string, before: State, fence: number): void {
    if (what.endsWith(' crashes')) way.event('the node forgets')
    if (what.endsWith(' votes again')) way.event(`the node votes again, from ${fence}`)
    const asked = /^(acquire|confirm|extend|release) (?:(\d+) )?of c(\d)/.exec(what)
    const back = /^c(\d) gives back/.exec(what)
    if (back !== null) {
      const from = Number(back[1])
      way.command({ kind: 'handOver', client: 0, number: this.#configuration.proposals[from]!, from })
    }
    if (asked === null) return
    const client = Number(asked[3])
    const kind = asked[1] as Exclude<Command['kind'], 'handOver'>
    const proposal = this.#configuration.proposals[client]!
    // A hand-over to who has the lease numbers it anew, as a confirmation may.
    if (kind === 'acquire' && this.#configuration.ticket === true && client === 0)
      way.command({ kind: 'confirm', client, number: fence })
    else if (kind === 'acquire' && this.#configuration.ticket === true)
      way.command({ kind: 'handOver', client, number: proposal, from: 0 })
    else if (kind === 'acquire') way.command({ kind, client, number: proposal })
    else if (kind === 'confirm') way.command({ kind, client, number: Number(asked[2]) })
    else way.command({ kind, client, number: before[clientAt(this.#many.shape, client) + CLIENT.token]! })
  }

  /** What was voted for elsewhere is not won here; and who can win no more has given up. */
  #decides(way: Way, client: number, after: State): void {
    const there = clientAt(this.#many.shape, client)
    const isOver = after[there + CLIENT.over] === 1
    if (this.#phase(after, client) === PHASE.won) way.event(`c${client} has won with ${after[there + CLIENT.token]}`)
    const isOpen = this.#phase(after, client) <= PHASE.running && !isOver
    if (!isOpen && way.phase(client) === PHASE.running) way.event(`c${client} gives up`)
    if (isOver) way.event(`validity of c${client} is over`)
  }

  #phase(state: State, client: number): number {
    return state[clientAt(this.#many.shape, client) + CLIENT.phase]!
  }

  #wrong(
    ways: readonly Way[],
    before: State,
    after: State,
    text: string,
    broken: string | undefined,
  ): string | undefined {
    for (const [node, way] of ways.entries())
      if (!this.#isSame(way, node, after)) return `not followed on n${node}: ${text}`
    for (let client = 0; client < this.#many.shape.clients; client++) {
      if (this.#phase(before, client) === PHASE.won || this.#phase(after, client) !== PHASE.won) continue
      const unseen = this.#unseen(ways, client, before, after)
      if (unseen !== undefined) return unseen
    }
    const [seen] = ways.flatMap((way) => way.broken ?? [])
    if (broken !== undefined)
      return seen === undefined ? `broken on no node: ${broken}` : `${broken}; on one node: ${seen}`
    return undefined
  }

  /** The same lock, counter and status; and who may still win may do so here. */
  #isSame(way: Way, node: number, after: State): boolean {
    const { shape } = this.#many
    const there = nodeAt(shape, node)
    const behind = at(shape.clients)
    for (let client = 0; client < shape.clients; client++) {
      const isOpen = this.#phase(after, client) === PHASE.running && after[clientAt(shape, client) + CLIENT.over] === 0
      if (isOpen !== (way.phase(client) === PHASE.running)) return false
    }
    return (
      way.state[behind] === after[there + NODE.owner] &&
      way.state[behind + 1] === after[there + NODE.fence] &&
      way.state[ONE_RUN.out] === after[there + NODE.status]
    )
  }

  /** What cannot be seen on one node of the promises to a client that has just won. */
  #unseen(ways: readonly Way[], client: number, before: State, after: State): string | undefined {
    const { shape } = this.#many
    const voters = ways.filter((way) => way.phase(client) === PHASE.won)
    if (voters.length < quorumOf(shape.nodes)) return `c${client} has won with the votes of ${voters.length}`
    const floor = before[clientAt(shape, client) + CLIENT.floor]!
    if (voters.every((way) => way.from[at(client) + ONE.floor]! < floor))
      return `no node knows that ${floor} is too low`
    for (let other = 0; other < shape.clients; other++) {
      const there = clientAt(shape, other)
      if (other === client || after[there + CLIENT.phase] !== PHASE.won) continue
      const isShared = voters.some((way) => way.phase(other) === PHASE.won && this.#isAlike(way, other, after))
      if (!isShared) return `no node has voted for c${client} and c${other}`
    }
    return undefined
  }

  #isAlike(way: Way, client: number, after: State): boolean {
    const there = clientAt(this.#many.shape, client)
    const isToken = way.state[at(client) + ONE.token] === after[there + CLIENT.token]
    const isOver = way.state[at(client) + ONE.over] === after[there + CLIENT.over]
    return isToken && (isOver || this.#configuration.clocks === 'any')
  }

  #pack(many: State, ones: readonly State[], pair: State): void {
    const { shape } = this
    const theirs = this.#many.shape
    pair.set(many.subarray(0, nodeAt(theirs, 0)))
    for (let node = 0; node < shape.nodes; node++) {
      const there = nodeAt(theirs, node)
      pair.set(many.subarray(there, linkAt(theirs, node, 0)), nodeAt(shape, node))
      for (let client = 0; client < shape.clients; client++) {
        const from = linkAt(theirs, node, client)
        const own = linkAt(shape, node, client) + theirs.link
        pair.set(many.subarray(from, from + theirs.link), linkAt(shape, node, client))
        pair.set(ones[node]!.subarray(at(client), at(client + 1)), own)
        pair[own + TOP] = ones[node]![ONE_RUN.top]!
      }
    }
  }

  #unpack(pair: State): { many: State; ones: State[] } {
    const { shape } = this
    const theirs = this.#many.shape
    const many = new Uint16Array(theirs.words)
    many.set(pair.subarray(0, nodeAt(shape, 0)))
    const ones = Array.from({ length: shape.nodes }, (_, node) => {
      const one = this.#one.start()
      const there = nodeAt(shape, node)
      many.set(pair.subarray(there, linkAt(shape, node, 0)), nodeAt(theirs, node))
      for (let client = 0; client < shape.clients; client++) {
        const from = linkAt(shape, node, client)
        const own = from + theirs.link
        many.set(pair.subarray(from, own), linkAt(theirs, node, client))
        one.set(pair.subarray(own, own + ONE_WORDS), at(client))
        one[ONE_RUN.top] = pair[own + TOP]!
      }
      one[ONE_RUN.out] = pair[there + NODE.status]!
      one[at(shape.clients)] = pair[there + NODE.owner]!
      one[at(shape.clients) + 1] = pair[there + NODE.fence]!
      return one
    })
    return { many, ones }
  }
}

interface Happening {
  /** The node. */
  readonly where: number | undefined
  /** Whose key was in the way. */
  readonly expired: string | undefined
  readonly what: string
}

const HAPPENINGS = new Map<string, Happening>()

function happeningOf(text: string): Happening {
  let happening = HAPPENINGS.get(text)
  if (happening === undefined) {
    const [, expired, what] = /^(?:key of c(\d) expires, then )?(.*)$/.exec(text)!
    const where = /at n(\d): |^n(\d) /.exec(what!)
    happening = { where: where === null ? undefined : Number(where[1] ?? where[2]), expired, what: what! }
    HAPPENINGS.set(text, happening)
  }
  return happening
}

function modelOf(configuration: Configuration): Model {
  return configuration.model === 'exact' ? new Exact(configuration) : new Loose(configuration)
}

interface Taken {
  readonly next: State
  readonly broken: string | undefined
}

/** This many steps of one node are remembered; all are forgotten when there are more. */
const MOST_REMEMBERED = 1_000_000

/** The steps of one node, remembered: what happens to several is mostly the same to each. */
class Followed {
  readonly #one: OneNode
  #known = new Map<string, Taken | undefined>()

  constructor(one: OneNode) {
    this.#one = one
  }

  start(): State {
    return this.#one.start()
  }

  /** The step of this name, if the node has it. */
  event(state: State, name: string): Taken | undefined {
    return this.#taken(state, name, (visit) => {
      this.#one.events(state, (next, broken, text) => {
        if (text() === name) visit(next, broken, text)
      })
    })
  }

  /** None if the command changes nothing, and tells nothing new. */
  command(state: State, command: Command): Taken | undefined {
    const { kind, client, number } = command
    const from = command.kind === 'handOver' ? command.from : ''
    return this.#taken(state, `${kind} ${number} ${client} ${from}`, (visit) =>
      this.#one.command(state, command, visit),
    )
  }

  #taken(state: State, name: string, look: (visit: Visit) => void): Taken | undefined {
    const key = String.fromCharCode(...state) + name
    if (this.#known.has(key)) return this.#known.get(key)
    let taken: Taken | undefined
    look((next, broken) => (taken = { next: next.slice(), broken }))
    if (this.#known.size >= MOST_REMEMBERED) this.#known = new Map()
    this.#known.set(key, taken)
    return taken
  }
}

/** Steps of one node, one after the other. One that it does not have is left out: whether it comes to the right end is looked at there. */
class Way {
  readonly from: State
  state: State
  broken: string | undefined
  readonly #one: Followed

  constructor(one: Followed, from: State) {
    this.#one = one
    this.from = from
    this.state = from
  }

  event(name: string): this {
    return this.#go(this.#one.event(this.state, name))
  }

  command(command: Command): this {
    return this.#go(this.#one.command(this.state, command))
  }

  phase(client: number): number {
    return this.state[at(client) + ONE.phase]!
  }

  #go(taken: Taken | undefined): this {
    this.state = taken?.next ?? this.state
    this.broken ??= taken?.broken
    return this
  }
}

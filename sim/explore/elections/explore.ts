import type { Deadlines } from '../../../src/deadlines.ts'
import type { Election, ElectionPlan } from '../../../src/engines/redis/election.ts'
import type { RedisNode } from '../../../src/engines/redis/node.ts'
import { quorumOf, type NodeAnswer } from '../../../src/engines/redis/votes.ts'
import type { Explored, Limits } from '../explore.ts'
import type { Readable } from './readable.ts'

export interface ElectionConfiguration {
  readonly nodes: number
  /** The first node is asked alone. */
  readonly inOrder: boolean
  /** Numbers that a node grants, or has in the way. */
  readonly most: number
}

export interface ElectionsFound extends Explored {
  readonly wins: number
  readonly losses: number
}

interface Request {
  readonly node: number
  /** 0: the acquire; else the number to confirm. */
  readonly token: number
  /** Sent while the acquire was on its way: with several connections it may come before that. */
  readonly isEarly: boolean
}

/** What is true, whatever the election makes of it. */
interface Truth {
  /** On their way. */
  requests: readonly Request[]
  /** Of each node the numbers that it voted for, and whether it may have the lock for us, without an undo on its way. */
  votes: readonly (readonly number[])[]
  ours: readonly boolean[]
  /** Of each node, whether it is known by an answer that it granted or refused. */
  said: readonly ('granted' | 'refused' | undefined)[]
  asked: readonly number[]
  isTimed: boolean
  told: readonly (number | undefined)[]
  settled: number
  /** The number that the first node answered with, where it was asked alone: 0 for a refusal, -1 for a failure. */
  first: number | undefined
}

type Fields = Record<string, unknown>

interface Place {
  readonly fields: Fields
  readonly truth: Truth
  readonly from: Place | undefined
  readonly text: string
}

const REFUSED: NodeAnswer | { kind: 'refused' } = { kind: 'refused' }
/** As election.ts has it. */
const CONFIRM_ROUNDS = 4

/**
 * One shipped election and everything that nodes may answer to it: any number, in any order, a refusal, a failure before or after the
 * request was sent, or nothing until the time is up, and late. What they say of numbers need not even make sense.
 */
export class Elections {
  readonly #code: Readable
  readonly #one: ElectionConfiguration
  readonly #nodes: RedisNode[]
  #truth!: Truth

  constructor(code: Readable, one: ElectionConfiguration) {
    this.#code = code
    this.#one = one
    this.#nodes = Array.from(
      { length: one.nodes },
      (_, node) => ({ label: `n${node}`, unanswered: 0, client: undefined }) as unknown as RedisNode,
    )
  }

  /** In breadth; states are kept whole, so no two are taken for one. */
  explore({ states: most = Infinity, clock = () => performance.now() }: Limits = {}): ElectionsFound {
    const beganMs = clock()
    const start = this.#start()
    const seen = new Set([this.#keyOf(start)])
    const open = [start]
    let [transitions, wins, losses] = [0, 0, 0]
    const found = (verdict: Explored['verdict'], why?: string, trail: readonly string[] = []): ElectionsFound => {
      return { states: seen.size, transitions, wins, losses, doubt: 0, verdict, why, trail, tookMs: clock() - beganMs }
    }
    for (const place of open) {
      const why = this.#broken(place.truth)
      if (why !== undefined) return found('broken', why, trailOf(place))
      if (seen.size > most) return found('not exhausted')
      const { requests, told } = place.truth
      if (requests.length === 0 && told[0] !== undefined) wins++
      if (requests.length === 0 && told[0] === undefined) losses++
      for (const next of this.#next(place)) {
        transitions++
        const key = this.#keyOf(next)
        if (seen.has(key)) continue
        seen.add(key)
        open.push(next)
      }
    }
    return found('holds')
  }

  #broken(truth: Truth): string | undefined {
    const { told, requests, settled, ours, votes, first } = truth
    if (told.length > 1) return 'it decided twice'
    if (told.length === 0 && requests.length === 0) return 'it waits although nothing is on its way'
    if (told.length === 0 && !truth.isTimed) return 'it waits without an end'
    if (settled !== (told.length > 0 && requests.length === 0 ? 1 : 0))
      return `it said ${settled} times that it is settled`
    if (new Set(truth.asked.filter((token) => token > 0)).size > CONFIRM_ROUNDS)
      return 'the number to confirm rose too often'
    if (this.#one.inOrder && first === undefined && requests.length > 1) return 'it asked others beside the first'
    if (first === 0 && truth.asked.length > 1 && votes.every((numbers) => numbers.length === 0) && told.length === 0)
      return 'it went on after the refusal of the first'
    const [token] = told
    if (token !== undefined) {
      const voters = votes.filter((numbers) => numbers.includes(token)).length
      if (voters < quorumOf(this.#one.nodes)) return `it won with ${token}, for which ${voters} nodes voted`
    } else if (told.length > 0 && requests.length === 0 && ours.includes(true))
      return `it lost, and n${ours.indexOf(true)} may keep its lock`
    return undefined
  }

  #start(): Place {
    this.#truth = {
      requests: [],
      votes: this.#nodes.map(() => []),
      ours: this.#nodes.map(() => false),
      said: this.#nodes.map(() => undefined),
      asked: [],
      isTimed: false,
      told: [],
      settled: 0,
      first: undefined,
    }
    const election = new this.#code.Election(this.#plan())
    election.run((token) => this.#told(election, token))
    return { fields: fieldsOf(election), truth: this.#truth, from: undefined, text: 'it begins' }
  }

  #told(election: Election, token: number | undefined): void {
    this.#truth.told = [...this.#truth.told, token]
    if (token !== undefined) return
    // What the engine does with an election that is lost.
    for (const node of [...election.doubtful(), ...election.granted()]) this.#undo(node)
  }

  #plan(): ElectionPlan {
    const ask = (node: number, token: number): void => {
      const isEarly = token > 0 && this.#truth.requests.some((request) => request.node === node && request.token === 0)
      this.#truth.requests = [...this.#truth.requests, { node, token, isEarly }]
      this.#truth.asked = [...this.#truth.asked, token].sort((a, b) => a - b)
    }
    return {
      nodes: this.#nodes,
      deadlines: {
        start: () => {
          this.#truth.isTimed = true
          return { cancel: () => (this.#truth.isTimed = false) }
        },
      } as unknown as Deadlines,
      timeoutMs: 1,
      inOrder: this.#one.inOrder,
      acquire: (node) => ask(node, 0),
      confirm: (node, _election, token) => ask(node, token),
      late: (node) => this.#undo(node),
      lateRefusal: () => undefined,
      settled: () => (this.#truth.settled += 1),
      isOver: () => false,
      suspects: new Set(),
    }
  }

  /** A release is sent, behind whatever was granted. */
  #undo(node: number): void {
    if (this.#truth.told[0] === undefined) this.#truth.ours = this.#truth.ours.with(node, false)
  }

  *#next(place: Place): Generator<Place> {
    for (const request of unlike(place.truth.requests)) {
      for (const answer of this.#answers(request, place.truth.said[request.node]))
        yield this.#after(place, request, answer)
      if (request.isEarly) yield this.#after(place, request, { kind: 'out' }, true)
      for (const isSent of request.token === 0 ? [true, false] : [true])
        yield this.#afterFailure(place, request, isSent)
    }
    if (!place.truth.isTimed) return
    yield this.#play(place, 'time is up', (election) => {
      this.#truth.isTimed = false
      if (this.#one.inOrder) this.#truth.first ??= -1
      ;(election as unknown as { _timeUp(): void })._timeUp()
    })
  }

  /** A node that refuses never says yes to a confirmation, and the other way round. */
  #answers({ token }: Request, said: Truth['said'][number]): (NodeAnswer | typeof REFUSED)[] {
    if (token > 0 && said === 'refused') return [{ kind: 'out' }]
    const numbers = Array.from({ length: this.#one.most }, (_, index) => index + 1)
    const grants = numbers.map((fence) => ({ kind: 'granted' as const, fence }))
    if (token === 0) return said === 'granted' ? grants : [...grants, REFUSED]
    const higher = numbers.filter((fence) => fence > token).map((fence) => ({ kind: 'higher' as const, fence }))
    return [{ kind: 'confirmed', token }, ...higher, { kind: 'out' }]
  }

  /** `isBefore`: the answer is from before the node granted. */
  #after(place: Place, request: Request, answer: NodeAnswer | typeof REFUSED, isBefore = false): Place {
    const { node } = request
    const number = 'fence' in answer ? answer.fence : 'token' in answer ? answer.token : 0
    const isVote = answer.kind === 'granted' || answer.kind === 'confirmed'
    return this.#play(
      place,
      `n${node} answers ${answer.kind} ${number}${isBefore ? ', from before it granted' : ''}`,
      (election) => {
        this.#arrived(request)
        if (isVote && !this.#truth.votes[node]!.includes(number))
          this.#truth.votes = this.#truth.votes.with(
            node,
            [...this.#truth.votes[node]!, number].sort((a, b) => a - b),
          )
        // A confirmation leaves the lock as it is; where it says no, there is none.
        const isGone = request.token > 0 && answer.kind === 'out' && !isBefore
        if (request.token === 0 || isGone) this.#truth.ours = this.#truth.ours.with(node, isVote)
        if (answer.kind !== 'out')
          this.#truth.said = this.#truth.said.with(node, answer.kind === 'refused' ? 'refused' : 'granted')
        if (this.#one.inOrder) this.#truth.first ??= number
        election.answered(node, answer as NodeAnswer)
      },
    )
  }

  #afterFailure(place: Place, request: Request, isSent: boolean): Place {
    const { node } = request
    return this.#play(place, `n${node} fails${isSent ? '' : ' before anything was sent'}`, (election) => {
      this.#arrived(request)
      if (request.token === 0) this.#truth.ours = this.#truth.ours.with(node, isSent)
      if (this.#one.inOrder) this.#truth.first ??= -1
      election.failed(node, isSent ? new Error('failed') : new this.#code.NotSentError('not sent'))
    })
  }

  #arrived(request: Request): void {
    const at = this.#truth.requests.findIndex((other) => isLike(request, other))
    this.#truth.requests = this.#truth.requests.toSpliced(at, 1)
  }

  #play(from: Place, text: string, play: (election: Election) => void): Place {
    this.#truth = { ...from.truth }
    const election = Object.create(this.#code.Election.prototype) as Election
    Object.assign(election, copyOf(from.fields), this.#bonds(election))
    play(election)
    return { fields: fieldsOf(election), truth: this.#truth, from, text }
  }

  /** What binds an election to the truth of one place. */
  #bonds(election: Election): Fields {
    return {
      _plan: this.#plan(),
      _tell: (token: number | undefined) => this.#told(election, token),
      _deadline: { cancel: () => (this.#truth.isTimed = false) },
    }
  }

  #keyOf({ fields, truth }: Place): string {
    const requests = truth.requests.map(({ node, token, isEarly }) => `${node} ${token} ${isEarly}`).sort()
    return JSON.stringify([fields, { ...truth, requests }], (_key, value: unknown) => {
      if (value instanceof Map) return [...(value as Map<number, { cause: Error }>)].map(failureOf).sort()
      return value instanceof Set ? [...(value as Set<number>)].sort((one, other) => one - other) : value
    })
  }
}

/** What it knows, without what binds it to one place. */
function fieldsOf(election: Election): Fields {
  const { _plan, _tell, _deadline, highestFence: _highest, ...fields } = election as unknown as Fields
  return copyOf(fields)
}

function failureOf([node, { cause }]: [number, { cause: Error }]): string {
  return `${node} ${cause.name}`
}

function copyOf(fields: Fields): Fields {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => {
      if (value instanceof Map) return [name, new Map(value)]
      if (value instanceof Set) return [name, new Set(value)]
      return [name, Array.isArray(value) ? [...(value as unknown[])] : value]
    }),
  )
}

function unlike(requests: readonly Request[]): Request[] {
  return requests.filter((request, at) => requests.findIndex((other) => isLike(request, other)) === at)
}

function isLike(one: Request, other: Request): boolean {
  return one.node === other.node && one.token === other.token && one.isEarly === other.isEarly
}

function trailOf(place: Place): string[] {
  const trail: string[] = []
  for (let at: Place | undefined = place; at !== undefined; at = at.from) trail.unshift(at.text)
  return trail
}

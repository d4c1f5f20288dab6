import type { Clock } from '../clock.ts'
import type { Heard } from '../engines/redis/request.ts'
import type { Step } from '../engines/redis/steps.ts'
import { lockedError, type ExecutionStats } from './errors.ts'

type Operation = 'acquire' | 'extend' | 'release'

/** How long the votes of a ballot are waited for after the decision: as long as any node may take to answer. */
const LATE_MS = 2000

/** What the nodes say to one operation of one owner. */
export class Ballot<Client extends object> {
  readonly stats: Promise<ExecutionStats<Client>>
  readonly #clients: readonly Client[]
  readonly #resources: number
  readonly #onAgainst: (error: Error) => void
  readonly #asked = new Set<number>()
  readonly #for = new Set<Client>()
  readonly #against = new Map<Client, Error>()
  #resolve!: (stats: ExecutionStats<Client>) => void
  #underWay = 0
  #isOver = false

  constructor(clients: readonly Client[], resources: number, onAgainst: (error: Error) => void) {
    this.#clients = clients
    this.#resources = resources
    this.#onAgainst = onAgainst
    this.stats = new Promise((resolve) => (this.#resolve = resolve))
  }

  /** How many nodes were asked. */
  get asked(): number {
    return this.#asked.size
  }

  sent(node: number): void {
    this.#asked.add(node)
    this.#underWay++
  }

  /** Undefined: the answer is no vote. */
  heard(node: number, vote: boolean | Error | undefined): void {
    this.#underWay--
    const client = this.#clients[node]!
    if (vote === true) {
      this.#against.delete(client)
      this.#for.add(client)
    } else if (vote !== undefined) {
      this.#for.delete(client)
      const error = vote === false ? lockedError(this.#resources) : asDriverError(vote)
      this.#against.set(client, error)
      this.#onAgainst(error)
    }
    if (this.#isOver && this.#underWay === 0) this.#tell()
  }

  /** The operation is decided. What is still under way is waited for, but not forever. */
  close(clock: Clock): void {
    if (this.#isOver) return
    this.#isOver = true
    if (this.#underWay === 0) this.#tell()
    else clock.timer(() => this.#tell(), LATE_MS, true)
  }

  #tell(): void {
    const membershipSize = this.#clients.length
    const votesAgainst = new Map(this.#against)
    for (const client of this.#clients) {
      if (!this.#for.has(client) && !votesAgainst.has(client)) votesAgainst.set(client, new Error(NO_VOTE))
    }
    const quorumSize = Math.floor(membershipSize / 2) + 1
    this.#resolve({ membershipSize, quorumSize, votesFor: new Set(this.#for), votesAgainst })
  }
}

const NO_VOTE = 'This node was not asked, or has not answered.'

/** What ioredis says, and so redlock, where a client is closed: programs look for it. */
const CLOSED = 'Connection is closed.'

function asDriverError(error: Error): Error {
  if (error.message === CLOSED) return error
  const isClosed =
    error.message.includes(CLOSED) || /client cannot be used: it is (closed|being closed)/.test(error.message)
  return isClosed ? new Error(CLOSED, { cause: error }) : error
}

/** The ballots that are open, by operation and owner. Hears every step of an engine. */
export class OpenBallots<Client extends object> {
  readonly #open = new Map<string, Ballot<Client>>()

  add(operation: Operation, owner: string, ballot: Ballot<Client>): void {
    this.#open.set(`${operation} ${owner}`, ballot)
  }

  remove(operation: Operation, owner: string): void {
    this.#open.delete(`${operation} ${owner}`)
  }

  /** Who is to hear the answer of a node to this step. */
  hear(node: number, step: Step<unknown>): Heard | undefined {
    const votes = this.#votes(step)
    if (votes.length === 0) return undefined
    for (const { ballot } of votes) ballot.sent(node)
    return (answer) => {
      for (const { ballot, read } of votes) ballot.heard(node, answer instanceof Error ? answer : read(answer))
    }
  }

  #votes({ script, args: { words } }: Step<unknown>): StepVote<Client>[] {
    switch (script.name) {
      case 'acquire':
      case 'claim':
      case 'enqueue':
        return this.#vote('acquire', words[0]!, granted)
      case 'handOver':
        return [...this.#vote('release', words[0]!, granted), ...this.#vote('acquire', words[1]!, granted)]
      case 'release':
        return this.#vote('release', words[0]!, (answer) => (answer as { ours: boolean }).ours)
      case 'extend':
        // Two arguments for all, then four for each lease, of which the second is its owner.
        return words
          .slice(2)
          .filter((_word, index) => index % 4 === 1)
          .flatMap((owner, place) => this.#vote('extend', owner, (answer) => (answer as readonly boolean[])[place]))
      default:
        return []
    }
  }

  #vote(operation: Operation, owner: string, read: StepVote<Client>['read']): StepVote<Client>[] {
    const ballot = this.#open.get(`${operation} ${owner}`)
    return ballot === undefined ? [] : [{ ballot, read }]
  }
}

interface StepVote<Client extends object> {
  readonly ballot: Ballot<Client>
  /** Undefined where the answer is no vote. */
  readonly read: (answer: unknown) => boolean | undefined
}

/** A node that offers the lock to the first in line keeps it for them, and one that knows somebody before us does not. */
function granted(answer: unknown): boolean | undefined {
  const { kind } = answer as { readonly kind: string }
  if (kind === 'granted' || kind === 'offered') return true
  return kind === 'refused' || kind === 'behind' ? false : undefined
}

import type { Clock, Timer } from '../../clock.ts'
import type { NodeFailure } from '../../errors.ts'
import { NotSentError, type Granted, type RedisNode, type Refused } from './node.ts'
import { count, decide, noBallots, type Ballots, type NodeAnswer } from './votes.ts'

export interface ElectionPlan {
  readonly nodes: readonly RedisNode[]
  readonly clock: Clock
  readonly timeoutMs: number
  /** Asks the first node alone, and the others only if it votes for us: rivals who do the same meet there, and one wins. */
  readonly inOrder: boolean
  acquire(node: RedisNode): Promise<Granted | Refused>
  confirm(node: RedisNode, token: number): Promise<NodeAnswer>
  /** An answer after the decision: a grant, or a failure that may have been one. */
  late(node: number): void
  /** Every request has been answered or has failed. */
  settled(): void
}

export interface Outcome {
  readonly token: number | undefined
  readonly refusals: readonly Refused[]
  readonly failures: readonly NodeFailure[]
  /** Nodes that are ours. */
  readonly granted: readonly number[]
  /** Nodes that may be ours: silent, or failed in a way that tells nothing. */
  readonly unknown: readonly number[]
  readonly highestFence: number
}

/** How often the number to confirm may rise before the election is given up: each time, a rival has just been granted. */
const CONFIRM_ROUNDS = 4

/** One owner's election: asks the nodes, decides as early as it can, and keeps an ear open for the slow ones. */
export class Election {
  readonly #plan: ElectionPlan
  #ballots: Ballots
  #resolve!: (outcome: Outcome) => void
  #timer: Timer | undefined
  #decided = false
  #asked: number[]
  #rounds = 0
  #confirming = 0
  #underWay = 0
  #highestFence = 0
  readonly #refusals: Refused[] = []
  readonly #failures = new Map<number, NodeFailure>()
  /** The nodes still to be asked one by one; empty when all are asked at once. */
  readonly #inOrder: number[]
  /** The node that is asked alone. */
  #alone: number | undefined

  constructor(plan: ElectionPlan) {
    this.#plan = plan
    this.#ballots = noBallots(plan.nodes.length)
    this.#asked = plan.nodes.map(() => 0)
    const suspects = (index: number): number => Number(plan.nodes[index]!.suspect)
    this.#inOrder = plan.inOrder ? [...plan.nodes.keys()].sort((a, b) => suspects(a) - suspects(b)) : []
  }

  run(): Promise<Outcome> {
    return new Promise((resolve) => {
      this.#resolve = resolve
      this.#armTimer()
      if (this.#inOrder.length > 0) this.#askNext()
      else for (const index of this.#plan.nodes.keys()) this.#ask(index)
    })
  }

  #askNext(): void {
    this.#armTimer()
    this.#alone = this.#inOrder.shift()!
    this.#ask(this.#alone)
  }

  #ask(index: number): void {
    this.#send(index, this.#plan.acquire(this.#plan.nodes[index]!))
  }

  #send(index: number, request: Promise<NodeAnswer | Refused>): void {
    this.#underWay++
    request
      .then(
        (answer) => this.#answered(index, answer),
        (cause: unknown) => this.#failed(index, cause instanceof Error ? cause : new Error(String(cause))),
      )
      .finally(() => {
        if (--this.#underWay === 0 && this.#decided) this.#plan.settled()
      })
  }

  #answered(index: number, answer: NodeAnswer | Refused): void {
    this.#plan.nodes[index]!.suspect = false
    if ('fence' in answer) this.#highestFence = Math.max(this.#highestFence, answer.fence)
    if (this.#decided || this.#failures.has(index)) {
      if (answer.kind !== 'refused' && answer.kind !== 'out') this.#plan.late(index)
      return
    }
    if (answer.kind === 'refused') this.#refusals.push(answer)
    this.#count(index, answer.kind === 'refused' ? { kind: 'out' } : answer)
    this.#proceed(answer.kind)
  }

  #failed(index: number, cause: Error): void {
    this.#plan.nodes[index]!.suspect = true
    if (this.#decided || this.#failures.has(index)) {
      this.#plan.late(index)
      return
    }
    this.#fail(index, cause)
    this.#proceed('failed')
  }

  #fail(index: number, cause: Error): void {
    this.#failures.set(index, { node: this.#plan.nodes[index]!.label, cause })
    this.#count(index, { kind: 'out' })
  }

  #count(index: number, answer: NodeAnswer): void {
    this.#ballots = count(this.#ballots, index, answer)
  }

  /** What an answer leads to: the next node in order, a number to confirm, or the end. */
  #proceed(kind: (NodeAnswer | Refused)['kind'] | 'failed'): void {
    if (this.#alone !== undefined) {
      this.#alone = undefined
      if (kind === 'refused') return this.#decide(undefined)
      if (kind === 'failed' && this.#inOrder.length > 0) return this.#askNext()
      this.#armTimer()
      for (const index of this.#inOrder.splice(0)) this.#ask(index)
    }
    const decision = decide(this.#ballots)
    switch (decision.kind) {
      case 'won':
        return this.#decide(decision.token)
      case 'lost':
        return this.#decide(undefined)
      case 'confirm':
        return this.#confirm(decision.token, decision.nodes)
      case 'open':
    }
  }

  #confirm(token: number, nodes: readonly number[]): void {
    if (token !== this.#confirming) {
      this.#confirming = token
      if (this.#rounds++ >= CONFIRM_ROUNDS) return this.#decide(undefined)
      this.#armTimer()
    }
    for (const index of nodes) {
      if (this.#asked[index] === token) continue
      this.#asked[index] = token
      this.#send(index, this.#plan.confirm(this.#plan.nodes[index]!, token))
    }
  }

  #decide(token: number | undefined): void {
    this.#decided = true
    this.#timer?.cancel()
    const indexes = [...this.#plan.nodes.keys()]
    const state = (index: number): string => this.#ballots[index]!.state
    this.#resolve({
      token,
      refusals: this.#refusals,
      failures: [...this.#failures.values()],
      granted: indexes.filter((index) => state(index) === 'ours'),
      unknown: indexes.filter((index) => state(index) === 'silent' || this.#failedUnknown(index)),
      highestFence: this.#highestFence,
    })
  }

  /** It failed, but the request may have taken effect or may yet. */
  #failedUnknown(index: number): boolean {
    const failure = this.#failures.get(index)
    return failure !== undefined && !(failure.cause instanceof NotSentError)
  }

  #armTimer(): void {
    this.#timer?.cancel()
    this.#timer = this.#plan.clock.timer(() => this.#timeUp(), this.#plan.timeoutMs)
  }

  /** The outcome on every node that has not answered is unknown. */
  #timeUp(): void {
    if (this.#alone !== undefined) {
      this.#plan.nodes[this.#alone]!.suspect = true
      this.#fail(this.#alone, new Error(`no answer within ${this.#plan.timeoutMs} ms`))
      return this.#proceed('failed')
    }
    for (const [index, { state }] of this.#ballots.entries()) {
      if (state !== 'silent') continue
      this.#plan.nodes[index]!.suspect = true
      this.#fail(index, new Error(`no answer within ${this.#plan.timeoutMs} ms`))
    }
    const decision = decide(this.#ballots)
    this.#decide(decision.kind === 'won' ? decision.token : undefined)
  }
}

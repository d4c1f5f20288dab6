import type { Deadline, Deadlines } from '../../deadlines.ts'
import type { NodeVote } from '../../engine.ts'
import type { NodeFailure } from '../../errors.ts'
import { NoAnswerError } from '../shared/in-time.ts'
import { noAnswer, NotSentError } from './errors.ts'
import type { RedisNode } from './node.ts'
import type { StepListener } from './request.ts'
import type { NodeGrant, NodeRefusal } from './steps.ts'
import { count, decide, noBallots, quorumOf, type Ballots, type NodeAnswer } from './votes.ts'

export interface ElectionPlan {
  readonly nodes: readonly RedisNode[]
  readonly deadlines: Deadlines
  readonly timeoutMs: number
  /** Asks the first node alone, and the others only if it votes for us: rivals that do the same meet there, and one wins. */
  readonly inOrder: boolean
  /** Nodes that have failed in the latest election that heard of them: they are asked last in order. All elections of a quorum share it. */
  readonly suspects: Set<number>
  /** Asks a node, which answers to the election. */
  acquire(index: number, election: Election): void
  confirm(index: number, election: Election, token: number): void
  /** A grant after the decision, or a failure that may have been one. */
  late(node: number, failed: boolean): void
  /** A refusal after the decision. */
  lateRefusal(node: number): void
  /** Every request has been answered or has failed. */
  settled(): void
  /** A node has granted what the owner had there already. Resolves with the reason why that is no vote. Undefined: it is one. */
  readonly repeated?: ((index: number) => Promise<Error | undefined>) | undefined
  /** What it was about is over, also if it was won: a vote that has not been sent is not wanted any more. */
  isOver(): boolean
}

/** What the end of an election leads to. */
export interface ElectionEnd {
  /** By then the grants of a lost election are withdrawn. */
  decided(token: number | undefined, election: Election): void
  /** How a node is undone after an election that was lost, unless by a release. */
  undo?(index: number, election: Election): Promise<unknown> | undefined
  /** A node has failed after the decision. */
  lateFailure?(index: number, election: Election): void
  /** A node has refused although the election was won. */
  refusal?(index: number): void
  /** Nothing is withdrawn from a lost election: this is called with nodes that may grant after it. */
  left?(index: number): void
}

/** How often the number to confirm may rise before the election is given up. Each time, a rival was granted just before. */
const CONFIRM_ROUNDS = 4

const NONE: Election['refusals'] = []

/** One owner's election: asks the nodes, decides as early as it can, and reports what slow nodes answer after that. */
export class Election implements StepListener<NodeAnswer | NodeRefusal> {
  refusals: readonly (NodeRefusal & { readonly node: number })[] = NONE
  /** The highest number seen on any node. */
  highestFence = 0
  readonly #plan: ElectionPlan
  readonly #quorum: number
  #failures: Map<number, NodeFailure> | undefined
  /** The nodes that are ours, while all of them have granted the same number: then only their count decides. */
  readonly #alike: number[] = []
  #fence = 0
  /** What every node has answered; made with the first answer that differs. */
  #ballots: Ballots | undefined
  #tell!: (token: number | undefined) => void
  #deadline: Deadline | undefined
  #decided = false
  #token: number | undefined
  #underWay = 0
  /** The nodes still to be asked one by one; undefined when all are asked at once. */
  readonly #inOrder: number[] | undefined
  /** The node that is asked alone. */
  #alone: number | undefined
  /** The number to confirm, how often it has changed, and which nodes were asked for it. */
  #confirming = 0
  #rounds = 0
  #asked: Set<number> | undefined

  constructor(plan: ElectionPlan) {
    this.#plan = plan
    this.#quorum = quorumOf(plan.nodes.length)
    this.#inOrder = plan.inOrder ? suspectsLast(plan) : undefined
  }

  /** Calls back once, with the token if it was won. */
  run(decided: (token: number | undefined) => void): void {
    this.#tell = decided
    if (this.#inOrder !== undefined) return this.#askNext()
    this.#startDeadline()
    for (let index = 0; index < this.#plan.nodes.length; index++) this.#ask(index)
  }

  get failures(): NodeFailure[] {
    return [...(this.#failures?.values() ?? [])]
  }

  /** True from the moment of the decision: the next answer is late already. */
  get isLost(): boolean {
    return this.#decided && this.#token === undefined
  }

  /** How many nodes have granted or refused. */
  get heard(): number {
    return this.refusals.length + (this.#ballots === undefined ? this.#alike.length : this.granted().length)
  }

  /** Too many nodes have failed for a quorum of answers. */
  get isUnheard(): boolean {
    return (this.#failures?.size ?? 0) > this.#plan.nodes.length - this.#quorum
  }

  /** Too many nodes have refused for a quorum. */
  get isRefused(): boolean {
    return this.refusals.length > this.#plan.nodes.length - this.#quorum
  }

  /** Nodes that are ours. */
  granted(): number[] {
    return this.#nodes((_index, { state }) => state === 'ours')
  }

  /** Nodes that have refused. */
  refusing(): number[] {
    return this.#nodes((index, { state }) => state === 'out' && this.#failures?.has(index) !== true)
  }

  /** How many nodes were ours at some time. */
  voters(): number {
    return this.#nodes((_index, { votes }) => votes.length > 0).length
  }

  /**
   * Nodes that may be ours: they failed in a way that leaves it open, or they granted and then said no, which over several connections may
   * be from before. Nodes that have not answered yet are reported as late.
   */
  doubtful(): number[] {
    return this.#nodes((index, { state, votes }) => {
      const failure = this.#failures?.get(index)
      if (state === 'out' && votes.length > 0) return true
      return failure !== undefined && !(failure.cause instanceof NotSentError)
    })
  }

  /** What each node has said, for people: after the decision it stays the same. */
  votes(): NodeVote[] {
    const ballots = this.#ballotsNow()
    return this.#plan.nodes.map(({ label: node }, index) => {
      const refusal = this.refusals.find((refusal) => refusal.node === index)
      if (refusal !== undefined) return { node, vote: 'refused', holder: refusal.holder }
      const cause = this.#failures?.get(index)?.cause
      if (cause !== undefined && !(cause instanceof NoAnswerError)) return { node, vote: 'failed', cause }
      return { node, vote: cause === undefined && ballots[index]!.votes.length > 0 ? 'granted' : 'silent' }
    })
  }

  #nodes(fits: (index: number, ballot: Ballots[number]) => boolean): number[] {
    const ballots = this.#ballotsNow()
    return [...ballots.keys()].filter((index) => fits(index, ballots[index]!))
  }

  #askNext(): void {
    this.#startDeadline()
    this.#alone = this.#inOrder!.shift()!
    this.#ask(this.#alone)
  }

  isWanted(): boolean {
    return !this.isLost && !this.#plan.isOver()
  }

  answered(index: number, answer: NodeAnswer | NodeGrant | NodeRefusal): void {
    if ('isRepeated' in answer && this.#plan.repeated !== undefined) return this.#doubt(index, answer)
    this.#hear(index, answer)
    this.#settle()
  }

  #doubt(index: number, { kind, fence }: NodeGrant): void {
    void this.#plan.repeated!(index).then((error) => {
      if (error === undefined) this.answered(index, { kind, fence })
      else this.failed(index, error)
    })
  }

  failed(index: number, cause: Error): void {
    this.#hearFailure(index, cause)
    this.#settle()
  }

  #ask(index: number): void {
    this.#underWay++
    this.#plan.acquire(index, this)
  }

  #settle(): void {
    if (--this.#underWay === 0 && this.#decided) this.#plan.settled()
  }

  #hear(index: number, answer: NodeAnswer | NodeRefusal): void {
    this.#plan.suspects.delete(index)
    if ('fence' in answer && answer.fence > this.highestFence) this.highestFence = answer.fence
    if (this.#decided || this.#failures?.has(index) === true) {
      if (answer.kind === 'refused') this.#plan.lateRefusal(index)
      else if (answer.kind !== 'out') this.#plan.late(index, false)
      return
    }
    const isAlike = this.#alike.length === 0 || ('fence' in answer && answer.fence === this.#fence)
    if (this.#ballots === undefined && answer.kind === 'granted' && isAlike) {
      this.#fence = answer.fence
      this.#alike.push(index)
      return this.#proceed('granted')
    }
    // It was asked to confirm before it had granted, and said no; now it can be asked again.
    if (answer.kind === 'granted') this.#asked?.delete(index)
    if (answer.kind === 'refused') this.refusals = [...this.refusals, { ...answer, node: index }]
    this.#count(index, answer.kind === 'refused' ? { kind: 'out' } : answer)
    this.#proceed(answer.kind)
  }

  #hearFailure(index: number, cause: Error): void {
    this.#plan.suspects.add(index)
    if (this.#decided || this.#failures?.has(index) === true) {
      this.#plan.late(index, true)
      return
    }
    this.#fail(index, cause)
    this.#proceed('failed')
  }

  #fail(index: number, cause: Error): void {
    this.#failures ??= new Map()
    this.#failures.set(index, { node: this.#plan.nodes[index]!.label, cause })
    this.#count(index, { kind: 'out' })
  }

  #failSilent(index: number): void {
    this.#plan.suspects.add(index)
    this.#fail(index, noAnswer(this.#plan.timeoutMs, this.#plan.nodes[index]!.client))
  }

  #count(index: number, answer: NodeAnswer): void {
    this.#ballots = count(this.#ballotsNow(), index, answer)
  }

  #ballotsNow(): Ballots {
    if (this.#ballots !== undefined) return this.#ballots
    let ballots = noBallots(this.#plan.nodes.length)
    for (const index of this.#alike) ballots = count(ballots, index, { kind: 'granted', fence: this.#fence })
    return ballots
  }

  /** What an answer leads to: the next node in order, a number to confirm, or the end. */
  #proceed(kind: (NodeAnswer | NodeRefusal)['kind'] | 'failed'): void {
    if (this.#alone !== undefined) {
      this.#alone = undefined
      if (kind === 'refused') return this.#decide(undefined)
      if (kind === 'failed' && this.#inOrder!.length > 0) return this.#askNext()
      this.#startDeadline()
      for (const index of this.#inOrder!.splice(0)) this.#ask(index)
    }
    if (this.#ballots === undefined) {
      if (this.#alike.length >= this.#quorum) this.#decide(this.#fence)
      return
    }
    const decision = decide(this.#ballots, this.#confirming)
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
      this.#asked = new Set()
      if (this.#rounds++ >= CONFIRM_ROUNDS) return this.#decide(undefined)
      this.#startDeadline()
    }
    for (const index of nodes) {
      if (this.#asked?.has(index) === true) continue
      this.#asked?.add(index)
      this.#underWay++
      this.#plan.confirm(index, this, token)
    }
  }

  #decide(token: number | undefined): void {
    this.#decided = true
    this.#token = token
    this.#deadline?.cancel()
    if (this.#underWay === 0) this.#plan.settled()
    this.#tell(token)
  }

  #startDeadline(): void {
    this.#deadline?.cancel()
    this.#deadline = this.#plan.deadlines.start(this.#plan.timeoutMs, () => this.#timeUp())
  }

  /** The outcome on every node that has not answered is unknown. */
  #timeUp(): void {
    if (this.#alone !== undefined) {
      this.#failSilent(this.#alone)
      return this.#proceed('failed')
    }
    for (const [index, { state, votes }] of this.#ballotsNow().entries()) {
      const isAsked = this.#asked?.has(index) === true && !votes.includes(this.#confirming)
      if (state !== 'silent' && !(state === 'ours' && isAsked)) continue
      this.#failSilent(index)
    }
    const decision = decide(this.#ballotsNow(), this.#confirming)
    this.#decide(decision.kind === 'won' ? decision.token : undefined)
  }
}

/** A node that is this many answers behind the quickest is frozen or slow: the election should not wait for it. */
const FAR_BEHIND = 8

function suspectsLast({ nodes, suspects }: ElectionPlan): number[] {
  const least = Math.min(...nodes.map(({ unanswered }) => unanswered))
  const rank = (index: number): number => Number(suspects.has(index) || nodes[index]!.unanswered - least > FAR_BEHIND)
  return [...nodes.keys()].sort((a, b) => rank(a) - rank(b))
}

import type { Deadline, Deadlines } from '../../deadlines.ts'
import type { Release } from '../../engine.ts'
import type { EngineError, NodeFailure } from '../../errors.ts'
import { noAnswer } from './errors.ts'
import type { RedisNode } from './node.ts'
import type { StepListener } from './request.ts'
import type { NodeRelease, Step } from './steps.ts'
import { quorumOf } from './votes.ts'

export interface ReleasePlan {
  readonly deadlines: Deadlines
  readonly timeoutMs: number
  readonly step: Step<NodeRelease>
  /** A node has answered or failed, in time or not. */
  released(index: number, ours: boolean): void
  /** How many of those who got the message of the release on this node are ourselves. */
  ownListeners(index: number): number
  failure(failures: readonly NodeFailure[]): EngineError
}

/** The release of a lease on all nodes: over as soon as the answers say whether it was held. */
export class QuorumRelease implements StepListener<NodeRelease> {
  readonly #nodes: readonly RedisNode[]
  readonly #plan: ReleasePlan
  readonly #quorum: number
  #deadline: Deadline | undefined
  #resolve!: (release: Release) => void
  #reject!: (error: EngineError) => void
  #isOver = false
  #ours = 0
  #notOurs = 0
  #awaited = 0
  #failures: NodeFailure[] | undefined
  /** Which nodes have answered or failed; of the others, the failure is that they did not. */
  #heard = 0
  readonly #isHeard: boolean[]

  constructor(nodes: readonly RedisNode[], plan: ReleasePlan) {
    this.#nodes = nodes
    this.#plan = plan
    this.#quorum = quorumOf(nodes.length)
    this.#isHeard = nodes.map(() => false)
  }

  run(): Promise<Release> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
      this.#deadline = this.#plan.deadlines.start(this.#plan.timeoutMs, () => this.#timeUp())
      for (let index = 0; index < this.#nodes.length; index++) this.#nodes[index]!.send(this.#plan.step, this, index)
    })
  }

  answered(index: number, { ours, listeners }: NodeRelease): void {
    this.#plan.released(index, ours)
    if (this.#isOver || this.#isHeard[index]) return
    if (ours) this.#ours++
    else this.#notOurs++
    if (listeners > 0) this.#awaited = Math.max(this.#awaited, listeners - this.#plan.ownListeners(index))
    this.#hear(index)
  }

  failed(index: number, cause: Error): void {
    this.#plan.released(index, false)
    if (this.#isOver || this.#isHeard[index]) return
    ;(this.#failures ??= []).push({ node: this.#nodes[index]!.label, cause })
    this.#hear(index)
  }

  #hear(index: number): void {
    this.#isHeard[index] = true
    this.#heard++
    const size = this.#nodes.length
    if (this.#ours >= this.#quorum) this.#decide({ ours: true, awaited: this.#awaited })
    else if (this.#notOurs > size - this.#quorum) this.#decide({ ours: false, awaited: this.#awaited })
    else if (this.#heard === size) this.#decide(undefined)
  }

  #timeUp(): void {
    for (const [index, { client }] of this.#nodes.entries()) {
      if (!this.#isOver && !this.#isHeard[index]) this.failed(index, noAnswer(this.#plan.timeoutMs, client))
    }
  }

  #decide(release: Release | undefined): void {
    this.#isOver = true
    this.#deadline?.cancel()
    if (release !== undefined) this.#resolve(release)
    else this.#reject(this.#plan.failure(this.#failures ?? []))
  }
}

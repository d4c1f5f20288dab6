import type { Deadline, Deadlines } from '../../deadlines.ts'
import type { Grant, LeaseRef, LeaseRequest, Refusal, Release } from '../../engine.ts'
import type { EngineError } from '../../errors.ts'
import { noAnswer, NotSentError } from './errors.ts'
import type { KeySet } from './keys.ts'
import type { RedisNode } from './node.ts'
import type { StepListener } from './request.ts'
import type { NodeGrant, NodeRefusal, Step } from './steps.ts'

export interface SingleNodeOptions {
  readonly deadlines: Deadlines
  timeoutMs(ttlMs: number): number
  failure(cause: unknown, resources: readonly string[]): EngineError
}

/**
 * The same steps where there is one node: its answer is the decision, and nothing has to be counted. Otherwise an election of
 * one would be half of the cost of an uncontended lease. See docs/decisions/0005-one-node-without-an-election.md.
 */
export class SingleNode {
  readonly #node: RedisNode
  readonly #options: SingleNodeOptions

  constructor(node: RedisNode, options: SingleNodeOptions) {
    this.#node = node
    this.#options = options
  }

  acquire(
    keys: KeySet,
    { owner, ttlMs, resources, shared }: LeaseRequest,
    proposal: number,
    resolve: (outcome: Grant | Refusal) => void,
    reject: (error: EngineError) => void,
  ): void {
    const step = this.#node.acquireStep(keys, owner, ttlMs, proposal)
    this.#ask(step, ttlMs, resources, {
      answered: (answer) => resolve(outcome(answer, shared)),
      failed: reject,
      undo: (cause) => {
        // A vote that was not asked for cannot be given.
        if (!(cause instanceof NotSentError)) this.#undo(keys, owner)
      },
    })
  }

  handOver(
    keys: KeySet,
    lease: LeaseRef,
    next: LeaseRequest,
    proposal: number,
    isAdoption: boolean,
    resolve: (outcome: Grant | Refusal) => void,
    reject: (error: EngineError) => void,
  ): void {
    const step = this.#node.handOverStep(keys, lease, next, proposal, false)
    this.#ask(step, next.ttlMs, lease.resources, {
      answered: (answer) => resolve(answer.kind === 'granted' ? outcome(answer) : { kind: 'refused', reason: 'held' }),
      failed: reject,
      // Whether it arrived or not: neither the old owner's key nor the new owner's key may stay for its ttl. An adoption gives back.
      undo: () => {
        if (isAdoption) return void this.#node.giveBack(keys, next.owner, lease, proposal).catch(() => undefined)
        this.#undo(keys, next.owner)
        this.#undo(keys, lease.owner)
      },
    })
  }

  /** `passOn`: to the first in line. `own`: how many of those listeners are ourselves. The counter stays as it is: the node granted the token itself. */
  release(keys: KeySet, { owner, ttlMs, resources }: LeaseRef, passOn: boolean, own: () => number): Promise<Release> {
    return new Promise((resolve, reject) => {
      this.#ask(this.#node.releaseStep(keys, owner, 0n, false, passOn), ttlMs, resources, {
        answered: ({ ours, listeners }) =>
          resolve({ ours, awaited: listeners === 0 ? 0 : Math.max(listeners - own(), 0) }),
        failed: reject,
        undo: () => undefined,
      })
    })
  }

  #ask<T>(step: Step<T>, ttlMs: number, resources: readonly string[], end: StepEnd<T>): void {
    const timeoutMs = this.#options.timeoutMs(ttlMs)
    const question = new NodeQuestion(end, (cause) => this.#options.failure(cause, resources))
    question.deadline = this.#options.deadlines.start(timeoutMs, () =>
      question.failed(0, noAnswer(timeoutMs, this.#node.client)),
    )
    this.#node.send(step, question, 0)
  }

  /** Best effort, in the background: the key's ttl does the rest. */
  #undo(keys: KeySet, owner: string): void {
    this.#node.release(keys, owner, 0n).catch(() => undefined)
  }
}

interface StepEnd<T> {
  answered(answer: T): void
  failed(error: EngineError): void
  /** The step failed, or was not answered in time; and once more when it is answered after that. */
  undo(cause?: Error): void
}

/** One step and its deadline: whichever comes first decides. */
class NodeQuestion<T> implements StepListener<T> {
  deadline: Deadline | undefined
  readonly #end: StepEnd<T>
  readonly #failure: (cause: Error) => EngineError
  #isOpen = true

  constructor(end: StepEnd<T>, failure: (cause: Error) => EngineError) {
    this.#end = end
    this.#failure = failure
  }

  answered(_node: number, answer: T): void {
    if (this.#close()) this.#end.answered(answer)
    else this.#end.undo()
  }

  failed(_node: number, cause: Error): void {
    const isFirst = this.#close()
    this.#end.undo(cause)
    if (isFirst) this.#end.failed(this.#failure(cause))
  }

  #close(): boolean {
    const wasOpen = this.#isOpen
    this.#isOpen = false
    this.deadline?.cancel()
    return wasOpen
  }
}

function outcome(answer: NodeGrant | NodeRefusal, shared = false): Grant | Refusal {
  if (answer.kind === 'granted') return { kind: 'granted', token: BigInt(answer.fence) }
  const { holder, offered, remainingMs } = answer
  // Readers do not keep each other out.
  const writerWaits = shared && answer.shared ? { writerWaits: true } : {}
  return {
    kind: 'refused',
    reason: 'held',
    holder,
    ...(offered ? { offered } : {}),
    ...writerWaits,
    ...(remainingMs === undefined ? {} : { remainingMs }),
  }
}

import type { Deadlines } from '../../deadlines.ts'
import type { Grant, LeaseRef, LeaseRequest, Refusal, Release } from '../../engine.ts'
import type { EngineError } from '../../errors.ts'
import { inTime } from '../shared/in-time.ts'
import { noAnswer, NotSentError } from './errors.ts'
import type { KeySet } from './keys.ts'
import type { RedisNode } from './node.ts'
import type { NodeGrant, NodeRefusal } from './steps.ts'

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

  acquire(keys: KeySet, { owner, ttlMs, resources }: LeaseRequest, proposal: number): Promise<Grant | Refusal> {
    const undo = (): void => this.#undo(keys, owner)
    return this.#ask(this.#node.acquire(keys, owner, ttlMs, proposal), ttlMs, undo).then(outcome, (cause: unknown) => {
      if (!(cause instanceof NotSentError)) undo()
      throw this.#options.failure(cause, resources)
    })
  }

  handOver(keys: KeySet, lease: LeaseRef, next: LeaseRequest, proposal: number): Promise<Grant | Refusal> {
    // Whether it arrived or not: neither the old owner's key nor the new owner's key may stay for its ttl.
    const undo = (): void => {
      this.#undo(keys, next.owner)
      this.#undo(keys, lease.owner)
    }
    const request = this.#node.handOver(keys, lease.owner, next, proposal)
    return this.#ask(request, next.ttlMs, undo).then(
      (answer) => (answer.kind === 'granted' ? outcome(answer) : { kind: 'refused', reason: 'held' }),
      (cause: unknown) => {
        undo()
        throw this.#options.failure(cause, lease.resources)
      },
    )
  }

  /** `own`: how many of those listeners are ourselves. The counter stays as it is: the node granted the token itself. */
  release(keys: KeySet, { owner, ttlMs, resources }: LeaseRef, own: () => number): Promise<Release> {
    return this.#ask(this.#node.release(keys, owner, 0n), ttlMs).then(
      ({ ours, listeners }) => ({ ours, awaited: listeners === 0 ? 0 : Math.max(listeners - own(), 0) }),
      (cause: unknown) => {
        throw this.#options.failure(cause, resources)
      },
    )
  }

  #ask<T>(request: Promise<T>, ttlMs: number, late = nothing): Promise<T> {
    const timeoutMs = this.#options.timeoutMs(ttlMs)
    const silence = (): Error => noAnswer(timeoutMs, this.#node.client)
    return inTime(request, this.#options.deadlines, timeoutMs, { silence, late })
  }

  /** Best effort, in the background: the key's ttl does the rest. */
  #undo(keys: KeySet, owner: string): void {
    this.#node.release(keys, owner, 0n).catch(() => undefined)
  }
}

function nothing(): void {}

function outcome(answer: NodeGrant | NodeRefusal): Grant | Refusal {
  if (answer.kind === 'granted') return { kind: 'granted', token: BigInt(answer.fence) }
  const { holder, remainingMs } = answer
  return { kind: 'refused', reason: 'held', holder, ...(remainingMs === undefined ? {} : { remainingMs }) }
}

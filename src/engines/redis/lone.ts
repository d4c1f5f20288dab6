import type { Deadlines } from '../../deadlines.ts'
import type { Grant, LeaseRef, LeaseRequest, Refusal, Release } from '../../engine.ts'
import type { EngineError } from '../../errors.ts'
import { inTime } from './ask.ts'
import { NotSentError, type Granted, type KeySet, type RedisNode, type Refused } from './node.ts'

export interface LoneOptions {
  readonly deadlines: Deadlines
  timeoutMs(ttlMs: number): number
  failure(cause: Error, resources: readonly string[]): EngineError
}

/**
 * The same steps where there is one node: its answer is the decision, so that nothing has to be counted. Half of the cost
 * of an uncontended lease on one server would otherwise be an election of one.
 */
export class LoneNode {
  readonly #node: RedisNode
  readonly #options: LoneOptions

  constructor(node: RedisNode, options: LoneOptions) {
    this.#node = node
    this.#options = options
  }

  acquire(keys: KeySet, { owner, ttlMs, resources }: LeaseRequest, proposal: number): Promise<Grant | Refusal> {
    const undo = (): void => this.#undo(keys, owner)
    return this.#ask(this.#node.acquire(keys, owner, ttlMs, proposal), ttlMs, undo).then(outcome, (cause: Error) => {
      if (!(cause instanceof NotSentError)) undo()
      throw this.#options.failure(cause, resources)
    })
  }

  handOver(keys: KeySet, lease: LeaseRef, next: LeaseRequest, proposal: number): Promise<Grant | Refusal> {
    // Whether or not it arrived: neither the old owner's key nor the new one's may stay for its ttl.
    const undo = (): void => {
      this.#undo(keys, next.owner)
      this.#undo(keys, lease.owner)
    }
    const request = this.#node.handOver(keys, lease.owner, next, proposal)
    return this.#ask(request, next.ttlMs, undo).then(
      (answer) => (answer.kind === 'granted' ? outcome(answer) : { kind: 'refused', reason: 'held' }),
      (cause: Error) => {
        undo()
        throw this.#options.failure(cause, lease.resources)
      },
    )
  }

  /** `own`: how many of those who were told are ourselves. Its counter is not touched: the node granted the token itself. */
  release(keys: KeySet, { owner, ttlMs, resources }: LeaseRef, own: () => number): Promise<Release> {
    return this.#ask(this.#node.release(keys, owner, 0n), ttlMs).then(
      ({ ours, told }) => ({ ours, awaited: told === 0 ? 0 : Math.max(told - own(), 0) }),
      (cause: Error) => {
        throw this.#options.failure(cause, resources)
      },
    )
  }

  #ask<T>(request: Promise<T>, ttlMs: number, late?: () => void): Promise<T> {
    const { deadlines } = this.#options
    return inTime(request, deadlines, this.#options.timeoutMs(ttlMs), late)
  }

  /** Best effort, in the background: the key's ttl does the rest. */
  #undo(keys: KeySet, owner: string): void {
    this.#node.release(keys, owner, 0n).catch(() => undefined)
  }
}

function outcome(answer: Granted | Refused): Grant | Refusal {
  if (answer.kind === 'granted') return { kind: 'granted', token: BigInt(answer.fence) }
  const { holder, remainingMs } = answer
  return { kind: 'refused', reason: 'held', holder, ...(remainingMs === undefined ? {} : { remainingMs }) }
}

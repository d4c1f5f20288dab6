import type { Deadlines } from '../../deadlines.ts'
import { asError } from '../../errors.ts'
import type { RedisClient } from './client.ts'
import { noAnswer } from './errors.ts'

export type NodeOutcome<T> =
  | { readonly kind: 'answer'; readonly value: T }
  | { readonly kind: 'failed'; readonly cause: Error }

/**
 * Sends a request to every node and passes each answer on once: to `heard` until that returns that enough is known, to `late`
 * after that. A node that has not answered in time counts as failed, and its answer as late.
 */
export function ask<N extends { readonly client: RedisClient | undefined }, T>(
  nodes: readonly N[],
  round: {
    readonly deadlines: Deadlines
    readonly timeoutMs: number
    send(node: N, index: number): Promise<T>
    heard(index: number, answer: NodeOutcome<T>): boolean
    late?(index: number, answer: NodeOutcome<T>): void
  },
): Promise<void> {
  return new Promise((resolve) => {
    const heard = nodes.map(() => false)
    let open = nodes.length
    let done = false
    const deadline = round.deadlines.start(round.timeoutMs, () => {
      for (const [index, { client }] of nodes.entries()) {
        if (!done && !heard[index]) hear(index, { kind: 'failed', cause: noAnswer(round.timeoutMs, client) })
      }
    })
    const hear = (index: number, answer: NodeOutcome<T>): void => {
      if (done || heard[index] === true) {
        round.late?.(index, answer)
        return
      }
      heard[index] = true
      open--
      if (!round.heard(index, answer) && open > 0) return
      done = true
      deadline.cancel()
      resolve()
    }
    for (const [index, node] of nodes.entries()) {
      round.send(node, index).then(
        (value) => hear(index, { kind: 'answer', value }),
        (cause: unknown) => hear(index, { kind: 'failed', cause: asError(cause) }),
      )
    }
  })
}

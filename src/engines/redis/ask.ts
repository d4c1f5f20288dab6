import type { Deadlines } from '../../deadlines.ts'

export type Answer<T> =
  | { readonly kind: 'answer'; readonly value: T }
  | { readonly kind: 'failed'; readonly cause: Error }

/**
 * Sends something to every node and hears each answer once: `heard` until it says that enough is known, `late` after
 * that. A node that has not answered in time counts as failed, and its answer as late.
 */
export function ask<N, T>(
  nodes: readonly N[],
  round: {
    readonly deadlines: Deadlines
    readonly timeoutMs: number
    send(node: N, index: number): Promise<T>
    heard(index: number, answer: Answer<T>): boolean
    late?(index: number, answer: Answer<T>): void
  },
): Promise<void> {
  return new Promise((resolve) => {
    const heard = nodes.map(() => false)
    let open = nodes.length
    let done = false
    const deadline = round.deadlines.start(round.timeoutMs, () => {
      const cause = new Error(`no answer within ${round.timeoutMs} ms`)
      for (const index of nodes.keys()) if (!done && !heard[index]) hear(index, { kind: 'failed', cause })
    })
    const hear = (index: number, answer: Answer<T>): void => {
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
        (cause: unknown) =>
          hear(index, { kind: 'failed', cause: cause instanceof Error ? cause : new Error(String(cause)) }),
      )
    }
  })
}

/** One node's answer, if it comes in time; what comes after that, an answer or a failure, is told to `late`. */
export function inTime<T>(request: Promise<T>, deadlines: Deadlines, timeoutMs: number, late?: () => void): Promise<T> {
  return new Promise((resolve, reject) => {
    let isOpen = true
    const deadline = deadlines.start(timeoutMs, () => {
      isOpen = false
      reject(new Error(`no answer within ${timeoutMs} ms`))
    })
    request.then(
      (value) => {
        if (!isOpen) return late?.()
        deadline.cancel()
        resolve(value)
      },
      (cause: unknown) => {
        if (!isOpen) return late?.()
        deadline.cancel()
        reject(cause instanceof Error ? cause : new Error(String(cause)))
      },
    )
  })
}

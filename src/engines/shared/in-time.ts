import type { Deadlines } from '../../deadlines.ts'

/** The server has not answered in time. It may still do what it was asked for, later. */
export class NoAnswerError extends Error {
  /** `trouble`: what the driver says about its connection. */
  constructor(timeoutMs: number, trouble?: string) {
    super(`no answer within ${Math.round(timeoutMs)} ms${trouble === undefined ? '' : ` (${trouble})`}`)
    this.name = 'NoAnswerError'
  }
}

/**
 * The outcome of a request if it comes within `timeoutMs`, and otherwise a rejection. The deadline keeps no process alive:
 * the connection does.
 */
export function inTime<T>(
  request: Promise<T>,
  deadlines: Deadlines,
  timeoutMs: number,
  options: {
    /** The error of a request without an answer. Default: a `NoAnswerError`. */
    readonly silence?: () => Error
    /** Called when the answer, or a failure, arrives after the deadline. */
    readonly late?: () => void
  } = {},
): Promise<T> {
  return new Promise((resolve, reject) => {
    let isOpen = true
    const deadline = deadlines.start(timeoutMs, () => {
      isOpen = false
      reject(options.silence?.() ?? new NoAnswerError(timeoutMs))
    })
    const settle = (outcome: () => void): void => {
      if (!isOpen) return options.late?.()
      deadline.cancel()
      outcome()
    }
    request.then(
      (value) => settle(() => resolve(value)),
      (cause: unknown) => settle(() => reject(cause)),
    )
  })
}

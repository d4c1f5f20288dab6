import { setTimeout as pause } from 'node:timers/promises'

export interface UntilOptions {
  /** Named by the error, as in "a leader was not there within 5000 ms". */
  what: string
  /** Default 20 s: longer than a busy machine takes, and shorter than the usual ttl of a lease, 30 s. */
  withinMs?: number
  everyMs?: number
}

/**
 * Asks until the answer is truthy, and returns it. An exception counts as "not yet" (a server that starts refuses
 * connections); the last one is the cause of the final error.
 */
export async function until<T>(
  predicate: () => T | Promise<T>,
  { what, withinMs = 20_000, everyMs = 10 }: UntilOptions,
): Promise<NonNullable<T>> {
  const deadline = performance.now() + withinMs
  let lastError: unknown
  for (;;) {
    try {
      const answer = await beforeDeadline(predicate, deadline)
      if (answer) return answer
      lastError = undefined
    } catch (error) {
      lastError = error
    }
    if (performance.now() + everyMs >= deadline) {
      throw new Error(`${what}: not so within ${withinMs} ms`, { cause: lastError })
    }
    await pause(everyMs)
  }
}

/** A question to a frozen server may never be answered: the deadline holds for it too. */
async function beforeDeadline<T>(predicate: () => T | Promise<T>, deadline: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('the question was not answered')), deadline - performance.now())
  })
  try {
    return await Promise.race([predicate(), late])
  } finally {
    clearTimeout(timer)
  }
}

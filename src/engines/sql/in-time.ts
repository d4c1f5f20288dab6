import type { Clock } from '../../clock.ts'

/** The work's outcome, or a rejection when it takes longer. The timer keeps no process alive: the connection does. */
export function inTime<T>(clock: Clock, work: Promise<T>, timeoutMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(new Error(`no answer within ${Math.round(timeoutMs)} ms`))
    const timer = clock.timer(late, timeoutMs, true)
    work.then(resolve, reject).finally(() => timer.cancel())
  })
}

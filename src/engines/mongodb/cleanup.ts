import type { Cleanup } from '../shared/cleanup.ts'
import { UnansweredRequest } from './steps.ts'

/**
 * Frees what a failed request may have been granted. After a request without an answer the caller has waited long enough, so
 * everything happens in the background. There a try counts as the last one only if it began after the driver was done with
 * the request: until then the server may still receive it.
 */
export async function cleanUpAfter(
  cause: unknown,
  free: () => Promise<unknown>,
  ttlMs: number,
  cleanup: Cleanup,
): Promise<void> {
  if (!(cause instanceof UnansweredRequest)) return cleanup.now(free, ttlMs)
  let isSettled = false
  void cause.settled.then(() => (isSettled = true))
  const freeOnceSettled = async (): Promise<void> => {
    const wasSettled = isSettled
    await free()
    if (!wasSettled) throw new Error('the server may still receive the request')
  }
  cleanup.later(freeOnceSettled, ttlMs)
}

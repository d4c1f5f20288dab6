import type { LossReason } from './errors.ts'

interface About {
  readonly resources: readonly string[]
  readonly owner: string
}

/** Everything that happens to a lease, in the order in which it happens. */
export type LockEvent =
  | ({ readonly type: 'attempt' } & About)
  | ({
      readonly type: 'granted'
      readonly token: bigint
      readonly waitedMs: number
      readonly handedOver: boolean
    } & About)
  | ({
      readonly type: 'refused'
      readonly reason: 'held' | 'split'
      readonly holder: string | undefined
    } & About)
  | ({ readonly type: 'failed'; readonly cause: Error } & About)
  | {
      readonly type: 'waiting'
      readonly resources: readonly string[]
      readonly holder: string | undefined
      readonly atMostMs: number
    }
  | ({ readonly type: 'renewed'; readonly token: bigint; readonly slackMs: number } & About)
  | ({
      readonly type: 'doubtful'
      readonly token: bigint
      readonly cause: Error
      readonly remainingMs: number
    } & About)
  | ({ readonly type: 'lost'; readonly token: bigint; readonly reason: LossReason } & About)
  | ({
      readonly type: 'released'
      readonly token: bigint
      readonly ours: boolean | 'unknown'
      readonly cause?: Error
    } & About)
  | { readonly type: 'stalled'; readonly lateMs: number; readonly leases: number }

export type Observer = (event: LockEvent) => void

/**
 * Tells an observer without letting it break the lock: what it throws becomes an uncaught exception of its own, as with
 * any other callback, instead of a rejected acquire. Call sites check for an observer first, so that nobody pays for
 * events that nobody reads.
 */
export function tell<Event>(observer: (event: Event) => void, event: Event): void {
  try {
    observer(event)
  } catch (error) {
    queueMicrotask(() => {
      throw error
    })
  }
}

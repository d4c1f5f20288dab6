import type { RoundTrip } from './engine.ts'
import type { LossReason } from './errors.ts'

interface About {
  readonly resources: readonly string[]
  readonly owner: string
}

interface OfCall {
  /** Which call of `acquire`, `tryAcquire`, `using`, `elect` or `once` it is about: a number of its own in this process. */
  readonly call: number
}

interface OfLease extends About {
  readonly token: bigint
}

interface Ending extends OfLease {
  /** How long the lease was ours, counted from before it was asked for. */
  readonly heldMs: number
}

/** Why a call ended without a lease. `held`: it was not to wait. `closed`: these locks were. */
export type DenialReason = 'held' | 'timeout' | 'aborted' | 'closed' | 'failed'

/**
 * Everything that happens to a call and to its lease, in the order in which it happens. A call begins with `asked`, told
 * before it returns and so in the caller's own asynchronous context, and ends with `granted` or `denied`. A lease that
 * was `granted` ends with `lost`, `released` or `left`; one that was `lost` may be `released` all the same.
 */
export type LockEvent =
  | ({ readonly type: 'asked'; readonly resources: readonly string[]; readonly waitMs: number } & OfCall)
  | ({ readonly type: 'attempt' } & OfCall & About)
  | ({
      readonly type: 'granted'
      readonly token: bigint
      readonly waitedMs: number
      readonly handedOver: boolean
    } & OfCall &
      About)
  | ({
      readonly type: 'refused'
      readonly reason: 'held' | 'split'
      readonly holder: string | undefined
    } & OfCall &
      About)
  | ({ readonly type: 'failed'; readonly cause: Error } & OfCall & About)
  | ({
      readonly type: 'waiting'
      readonly resources: readonly string[]
      readonly holder: string | undefined
      readonly atMostMs: number
    } & OfCall)
  | ({
      readonly type: 'denied'
      readonly resources: readonly string[]
      readonly reason: DenialReason
      readonly waitedMs: number
      /** What the call rejects with; nothing where it was refused. */
      readonly cause?: unknown
    } & OfCall)
  | ({
      readonly type: 'renewed'
      /** What was left of the validity when the renewal was proved, and of which ttl. */
      readonly slackMs: number
      readonly ttlMs: number
    } & OfLease)
  | ({ readonly type: 'doubtful'; readonly cause: Error; readonly remainingMs: number } & OfLease)
  | ({ readonly type: 'lost'; readonly reason: LossReason } & Ending)
  | ({ readonly type: 'released'; readonly ours: boolean | 'unknown'; readonly cause?: Error } & Ending)
  /** By `once`: no longer renewed, it ends by itself. */
  | ({ readonly type: 'left' } & Ending)
  | { readonly type: 'stalled'; readonly lateMs: number; readonly leases: number }
  | RoundTrip

/** `engine` is the name of the engine, for an observer of several locks. */
export type Observer = (event: LockEvent, engine: string) => void

/** As the core tells it. */
export type Tell = (event: LockEvent) => void

let calls = 0

/** Counted over all locks of the process, so that one observer can tell the calls of several apart. */
export function nextCall(): number {
  return ++calls
}

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

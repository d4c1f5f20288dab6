import type { NodeState, NodeVote, RoundTrip } from './engine.ts'
import type { LossReason } from './errors.ts'

interface About {
  readonly resources: readonly string[]
  readonly owner: string
}

interface OfCall {
  /** The number of the call of `acquire`, `tryAcquire`, `using`, `elect`, `once` or `adopt`, unique in this process. */
  readonly call: number
}

interface OfLease extends About {
  readonly token: bigint
}

interface Ending extends OfLease {
  /** How long the lease was ours, counted from before the attempt. */
  readonly heldMs: number
}

/**
 * Why a call ended without a lease. `held`: the call was not to wait. `timeout`: its wait was over. `aborted`: its signal
 * aborted. `closed`: the locks were closed. `failed`: the last attempt failed, or the engine never answered.
 */
export type DenialReason = 'held' | 'timeout' | 'aborted' | 'closed' | 'failed'

/**
 * Everything that happens to a call and to its lease, in the order in which it happens. A call begins with `asked`, which comes
 * before the call returns and so in the caller's own asynchronous context. It ends with `granted` or `denied`. A lease that was
 * `granted` ends with `lost`, `released`, `left` or `moved`. After `lost` there may still be a `released`.
 */
export type LockEvent =
  | ({
      readonly type: 'asked'
      readonly resources: readonly string[]
      readonly waitMs: number
      readonly shared: boolean
    } & OfCall)
  | ({ readonly type: 'attempt' } & OfCall & About)
  | ({
      readonly type: 'granted'
      readonly token: bigint
      readonly waitedMs: number
      readonly handedOver: boolean
      readonly shared: boolean
      /** On a quorum: what each node said. */
      readonly votes?: readonly NodeVote[]
    } & OfCall &
      About)
  | ({
      readonly type: 'refused'
      readonly reason: 'held' | 'split'
      readonly holder: string | undefined
      /** On a quorum: what each node said. */
      readonly votes?: readonly NodeVote[]
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
      /** What the call rejects with. Absent where it was refused. */
      readonly cause?: unknown
    } & OfCall)
  | ({
      readonly type: 'renewed'
      /** What was left of the validity when the renewal was proved, and the ttl of that validity. */
      readonly slackMs: number
      readonly ttlMs: number
    } & OfLease)
  | ({ readonly type: 'doubtful'; readonly cause: Error; readonly remainingMs: number } & OfLease)
  | ({ readonly type: 'lost'; readonly reason: LossReason } & Ending)
  | ({ readonly type: 'released'; readonly ours: boolean | 'unknown'; readonly cause?: Error } & Ending)
  /**
   * By `once`: the lease is no longer renewed, and ends by itself when `atLeast` is over. With a `cause`, that time could not be
   * set: the lease ends with its ttl, which may be longer, and the next run may be skipped.
   */
  | ({ readonly type: 'left'; readonly cause?: Error } & Ending)
  /** It was handed off to another process: it is no longer renewed here, and goes on until that process adopts it or it runs out. */
  | ({ readonly type: 'moved' } & Ending)
  /**
   * By `once`: the beginning or the end of a run could not be recorded where its `runs` says, or old runs could not be deleted
   * there: `cause` says which. The job itself is not affected.
   */
  | ({ readonly type: 'unrecorded'; readonly cause: Error } & OfLease)
  | { readonly type: 'stalled'; readonly lateMs: number; readonly leases: number }
  /** How the servers answered, when `probe` or `check` has asked them. */
  | { readonly type: 'probed'; readonly servers: readonly NodeState[] }
  | RoundTrip

/** Receives events. `engine` is the name of the engine, for an observer of several locks. */
export type Observer = (event: LockEvent, engine: string) => void

/** Passes an event to the observer; what the observer throws does not come back. Undefined in the core where nobody observes. */
export type Tell = (event: LockEvent) => void

export function tellerOf(observe: Observer | undefined, engine: string): Tell | undefined {
  if (observe === undefined) return undefined
  const observer = (event: LockEvent): void => observe(event, engine)
  return (event) => tell(observer, event)
}

let calls = 0

/** Counted over all locks of the process, so that one observer can distinguish the calls of several locks. */
export function nextCall(): number {
  return ++calls
}

/**
 * Passes an event to an observer without letting it break the lock: what it throws becomes an uncaught exception of its own, as
 * with any other callback, instead of a rejected acquire.
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

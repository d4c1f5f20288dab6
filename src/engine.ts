import type { Instant } from './clock.ts'

/**
 * The contract between the core and an engine. Engines make single attempts; waiting, renewing, aborting, queueing and
 * events live in the core, once. Types only.
 */
export interface Engine {
  /** Short and stable: 'memory', 'redis', 'redlock'. */
  readonly name: string
  /**
   * Whose numbers the tokens are, the same in every process that shares them: a guard refuses to compare tokens of
   * different engines. The name, and what tells two of a kind apart as far as every process can know it (a prefix, a
   * table, a cluster's own id).
   */
  readonly identity: string
  readonly guarantees: Guarantees
  /** Which ttls this engine grants, and how much of a ttl its clocks may eat up. */
  readonly limits: EngineLimits
  /**
   * One attempt at all of the resources or none (they come sorted and without repetition). Rejects with `EngineError`
   * when it could not be made; by then, nothing of it may stay behind that the engine could have removed.
   */
  acquire(request: LeaseRequest): Promise<Grant | Refusal>
  /** Renews many leases at once; answers in their order. Never re-creates a lease that is gone. Never rejects. */
  extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]>
  /**
   * Ends the lease if it is still the owner's, whichever process acquired it: that is how a person ends a forgotten one.
   * Rejects with `EngineError` when that could not be found out.
   */
  release(lease: LeaseRef): Promise<Release>
  /**
   * Makes the lease end after its `ttlMs` from now, with nobody renewing it, also if this process is gone by then; it was
   * held until now. Needed only where an extension would not do, because the engine notices the end of its processes.
   */
  leave?(lease: LeaseRef): Promise<Extension>
  /** In one atomic step per server: if the lease is still the owner's, it becomes the next request's, with a new token. */
  handOver?(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal>
  /**
   * For engines whose leases can end before their time, with a connection: calls back when that may have happened. The core
   * then proves its leases at once and not only when their renewal is due.
   */
  onDoubt?(prove: () => void): void
  /** Calls `freed` whenever one of the resources may have become free; a spurious call does no harm, a missed one does. */
  watch?(resources: readonly string[], freed: () => void): Watch
  /**
   * For servers with a queue of their own, fair across processes: takes a place in it and resolves when the lease is
   * ours, proved again after the wait. Rejects when the signal aborts; by then the place is given up.
   */
  enqueue?(request: LeaseRequest, signal: AbortSignal): Promise<QueuedGrant>
  /** The leases there are, of one resource or of all. */
  inspect(resource?: string): AsyncIterable<LeaseInfo>
  /** The doctor: are these servers fit to hold locks of such a ttl? */
  check(ttlMs: number): Promise<readonly Finding[]>
  /**
   * How the servers answer right now, in a few round trips at most: for someone who watches them. Changes nothing, never
   * rejects, and answers in bounded time; a server that does not answer has an `error`.
   */
  probe?(): Promise<readonly NodeState[]>
  /** Creates what the engine needs on its servers (tables, stamps) ahead of its first use; says what it did, a line each. */
  init?(): Promise<readonly string[]>
  /** Ends what the engine itself opened; the user's own clients stay open. */
  close(): Promise<void>
}

export interface EngineLimits {
  readonly maxTtlMs: number
  /** How to get a longer one, for the error message. */
  readonly longer?: string
  /** The shortest ttl the servers keep; default: what the core asks for. */
  readonly minTtlMs?: number
  /** Why it is not shorter, and how to get a shorter one, for the error message. */
  readonly shorter?: string
  /** Clock drift to allow for over a ttl, in ms. */
  driftMs(ttlMs: number): number
}

export interface LeaseRequest {
  readonly resources: readonly string[]
  /** Unique to this attempt. */
  readonly owner: string
  readonly ttlMs: number
  /** Others are trying too: where several servers vote, ask them in an order that lets one of the rivals win. */
  readonly inOrder: boolean
}

export interface LeaseRef {
  readonly resources: readonly string[]
  readonly owner: string
  readonly token: bigint
  readonly ttlMs: number
}

export interface Grant {
  readonly kind: 'granted'
  readonly token: bigint
}

export interface QueuedGrant extends Grant {
  /** Taken before the proof was asked for: validity counts from here. */
  readonly since: Instant
}

/** `held`: someone else has it. `split`: nobody got it, because several tried at once. */
export interface Refusal {
  readonly kind: 'refused'
  readonly reason: 'held' | 'split'
  readonly holder?: string
  /** After this time an attempt has a chance even if nobody releases. */
  readonly remainingMs?: number
}

/** `unknown` is not `lost`: the lease may well be ours, it could just not be proved. */
export type Extension =
  | { readonly kind: 'held' }
  | { readonly kind: 'lost' }
  | { readonly kind: 'unknown'; readonly cause: Error }

export interface Release {
  /** It was still ours. */
  readonly ours: boolean
  /** How many others, in other processes, are known to wait for it. */
  readonly awaited: number
}

export interface Watch {
  /** Resolves when every later release will be noticed; false when this engine can't promise that and we must poll. */
  readonly armed: Promise<boolean>
  close(): void
}

export interface LeaseInfo {
  readonly resource: string
  readonly owner: string
  readonly token: bigint
  /** Undefined for a lock without an end, set by other software. */
  readonly remainingMs: number | undefined
  /** How long it has been held, where the engine knows it. */
  readonly heldMs?: number
  /** How many wait for it in the servers' own queue, where there is one. */
  readonly waiters?: number
}

export interface Finding {
  /** Stable, for machines: 'redis/eviction-policy'. */
  readonly id: string
  readonly severity: 'ok' | 'note' | 'warning' | 'critical'
  /** Which server it was found on, where that matters. */
  readonly node?: string
  /** What was found. */
  readonly found: string
  /** What it means for the lock. */
  readonly meaning: string
  /** What to do about it; absent when nothing is to be done. */
  readonly remedy?: string
}

/** One server, as it answered a moment ago. */
export interface NodeState {
  readonly node: string
  readonly roundTripMs: number | undefined
  /** How far its clock is ahead of ours, to within half of the round trip; undefined where it has none to ask for. */
  readonly clockOffsetMs: number | undefined
  /** Why it did not answer. */
  readonly error?: string
}

/** What an engine promises, for machines; docs/guarantees.md says the same in words. */
export interface Guarantees {
  /** What "at most one holder at a time" rests on. Tokens never rest on it. */
  readonly exclusion: 'one process' | 'one machine' | 'clocks within the drift allowance'
  /** Whose clock ends a lease that nobody renews. */
  readonly clock:
    | 'own process'
    | 'this machine'
    | 'the server'
    | 'the leader of the servers'
    | 'each server of the quorum'
  /** Where the fencing tokens come from. */
  readonly token: string
  /** What a granted lease outlives. */
  readonly survives: {
    readonly serverRestart: 'yes' | 'no' | 'with fsync on every write'
    /** How many servers may be gone at once: a number, or fewer than half of however many there are. */
    readonly lossOfServers: number | 'a minority'
    readonly failover: 'yes' | 'no' | 'not promised'
  }
  /** Who is next. `by process`: processes in the order in which they began to wait, within each its own callers in theirs. */
  readonly order: 'first come, first served in one process' | 'first come, first served by process'
}

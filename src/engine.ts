import type { Instant } from './clock.ts'

/**
 * The contract between the core and an engine. Engines make single attempts; waiting, renewing, aborting, queueing and
 * events live in the core, once. Types only.
 */
export interface Engine {
  /** Short and stable: 'memory', 'redis', 'redlock'. */
  readonly name: string
  /**
   * Which numbers the tokens belong to, the same in every process that shares them: a guard refuses to compare tokens of
   * different engines. It is the name, and what distinguishes two engines of that name as far as every process can know it
   * (a prefix, a table, a cluster's own id).
   */
  readonly identity: string
  readonly guarantees: Guarantees
  /** Which ttls this engine grants, and how much of a ttl the drift of clocks may take. */
  readonly limits: EngineLimits
  /**
   * One attempt at all of the resources or none (they come sorted and without repetition). Rejects with `EngineError`
   * when it could not be made. By then the engine has removed everything of the attempt that it could remove.
   */
  acquire(request: LeaseRequest): Promise<Grant | Refusal>
  /** Renews many leases. Returns an answer for each, in their order. Never re-creates a lease that is gone. Never rejects. */
  extend(leases: readonly LeaseRef[]): Promise<readonly Extension[]>
  /**
   * Ends the lease if it is still the owner's. Any process may do that: this is how a person ends a forgotten lease. Rejects
   * with `EngineError` when the engine could not find out whether it was the owner's.
   */
  release(lease: LeaseRef): Promise<Release>
  /**
   * Makes a lease that is held end after its `ttlMs` from now, with nobody renewing it, also if this process is gone by then.
   * Needed only where an extension is not enough: because the engine notices the end of its processes, or because a slow
   * server may still grant after it. Never called for a shared lease.
   */
  leave?(lease: LeaseRef): Promise<Extension>
  /**
   * In one atomic step per server: if the lease is still the owner's, it becomes the next request's, with a new token.
   * Refused as `held`: it was no longer the owner's. Refused as `split`: it was, but the servers did not agree on the next
   * owner, so nobody has it. Of an unknown outcome neither of the two has it. Never called for a shared lease, nor for a shared request.
   */
  handOver?(lease: LeaseRef, next: LeaseRequest): Promise<Grant | Refusal>
  /**
   * As `handOver`, for a lease that moves to another process. Only where `handOver` does not do for it (a ticket may be used twice, or the
   * outcome may be unknown), or is missing, because the next waiter of a process must not pass those of others, or because it would cost
   * more than a release. The old owner may go on: of an unknown outcome its lease is never released, and what the next request got is
   * given back to it. With `keepMs`, the lease does not end with this process. An engine with neither cannot move leases. A grant with an `owner`: the servers cannot change the owner, so that it stays, and the token too.
   */
  adopt?(lease: LeaseRef, next: LeaseRequest): Promise<AdoptedGrant | Refusal>
  /**
   * For engines whose leases end with a connection, before their time: calls back when that may have happened. The core then
   * renews its leases at once and does not wait until their renewal is due.
   */
  onDoubt?(prove: () => void): void
  /** Reports the round trip of every step, where there are several servers to compare. Called at most once. */
  observe?(tell: (event: RoundTrip) => void): void
  /** Calls `freed` when one of the resources may have become free. A needless call does no harm, a missing one does. */
  watch?(resources: readonly string[], freed: () => void): Watch
  /**
   * For servers with a queue of their own, fair across processes: takes a place in it and resolves when the lease is
   * ours, proved once more after the wait. Rejects when the signal aborts. By then the place is given up, or kept for the next
   * caller if the request has an heir. `newOwner`: for an engine that needs another owner for another try.
   */
  enqueue?(request: LeaseRequest, signal: AbortSignal, newOwner?: () => string): Promise<QueuedGrant>
  /**
   * An `EngineError` for a caller that has waited its whole time without any answer. It names the servers that are silent, as
   * far as the engine knows them. Without this method, the core names only the engine.
   */
  unanswered?(request: Pick<LeaseRequest, 'resources' | 'ttlMs'>, waitMs: number): Error
  /** The leases of one resource or of all. */
  inspect(resource?: string): AsyncIterable<LeaseInfo>
  /** The doctor: are these servers fit to hold locks of this ttl? */
  check(ttlMs: number): Promise<readonly Finding[]>
  /**
   * How the servers answer right now, for someone who watches them. It takes a few round trips at most, changes nothing, never
   * rejects, and resolves in bounded time. A server that does not answer has an `error`.
   */
  probe?(): Promise<readonly NodeState[]>
  /** Creates what the engine needs on its servers (tables, stamps) before its first use. Returns a line for each thing it did. */
  init?(): Promise<readonly string[]>
  /** Closes what the engine itself opened. The user's own clients stay open. */
  close(): Promise<void>
}

/** Which times to live an engine can keep, and how far its clocks may drift apart meanwhile. */
export interface EngineLimits {
  /** The longest ttl that the engine grants. */
  readonly maxTtlMs: number
  /** How to get a longer ttl, for the error message. */
  readonly longer?: string
  /** The shortest ttl that the servers keep. Default: the shortest that the core asks for. */
  readonly minTtlMs?: number
  /** Why the ttl cannot be shorter, and how to get a shorter one, for the error message. */
  readonly shorter?: string
  /** Clock drift to allow for over a ttl, in ms. */
  driftMs(ttlMs: number): number
}

/** What the core asks of an engine: these resources, for this owner, for this time. */
export interface LeaseRequest {
  readonly resources: readonly string[]
  /** Unique to this attempt. */
  readonly owner: string
  /** Whole milliseconds, as everywhere in this contract. */
  readonly ttlMs: number
  /** How many attempts of this call were refused with `retryWithinMs` right before this one. Default 0. */
  readonly round?: number
  /** Others are likely to try at the same moment, because a release has woken them too. Default false. */
  readonly contended?: boolean
  /** The lease must last this long from now on even if this process ends. For engines that notice the end of their processes. */
  readonly keepMs?: number
  /** In `enqueue`: how long its caller has waited already. Default 0. */
  readonly waitedMs?: number
  /**
   * In `enqueue`, for when the signal aborts: whether the next call of this process is for the same resources, ttl and kind. It
   * may then get this place, with its owner. Default no.
   */
  readonly hasHeir?: () => boolean
  /**
   * In `enqueue`, until it settles: to call with the failure while the servers, or a quorum of them, do not answer, and with undefined when
   * they answer again. A caller whose time is over meanwhile is told that failure, and not that somebody holds the resource.
   */
  readonly failing?: (cause: Error | undefined) => void
  /** Others may hold the same resources shared at the same time. Only where `guarantees.shared` is true. Default false. */
  readonly shared?: boolean
  /**
   * The call goes on waiting if it is refused. An engine without a queue of its own keeps later shared requests out for a
   * while where an exclusive request that waits was refused, so that readers who overlap cannot starve it. Default false.
   */
  readonly waits?: boolean
}

/** A lease as the core names it to an engine, to renew it, to release it or to hand it over. */
export interface LeaseRef {
  readonly resources: readonly string[]
  readonly owner: string
  readonly token: bigint
  readonly ttlMs: number
  /** As in the request. */
  readonly keepMs?: number
  /** As in the request. */
  readonly shared?: boolean
}

/** The answer of an engine that gave the lease, with its fencing token. */
export interface Grant {
  readonly kind: 'granted'
  readonly token: bigint
  /** On a quorum, if it is observed: what each node said. Made when it is called. */
  readonly votes?: () => readonly NodeVote[]
}

/** What one node of a quorum said before the decision. `silent`: it had not answered by then. */
export interface NodeVote {
  readonly node: string
  readonly vote: 'granted' | 'refused' | 'silent' | 'failed'
  /** Who has the lock there, if it refused. */
  readonly holder?: string
  /** Why it failed. */
  readonly cause?: Error
}

/** A grant that came out of the queue of the servers, with the moment from which it is valid. */
export interface QueuedGrant extends Grant {
  /** Taken before the proof was asked for: validity counts from here. */
  readonly since: Instant
  /** Whose it is, if it is not the owner of the request. */
  readonly owner?: string
}

/** What `adopt` of an engine answers: the lease of a ticket, with a new owner and a new token. */
export interface AdoptedGrant extends Grant {
  /** Whose it is, if it is not the owner of the next request. */
  readonly owner?: string
}

/** `held`: someone else has the resource. `split`: nobody got it, because several tried at once. */
export interface Refusal {
  readonly kind: 'refused'
  readonly reason: 'held' | 'split'
  readonly holder?: string
  /** Nobody has it: it is offered to `holder`, the first in line, who has not taken it yet. For the error. */
  readonly offered?: boolean
  /** The request is for a shared lease, and so are those in the way: a writer that waits keeps it out. For the error. */
  readonly writerWaits?: boolean
  /** After this time an attempt can succeed even if nobody releases. */
  readonly remainingMs?: number
  /**
   * After a split: a call that does not wait tries again after a random part of this time, with the next `round`. So does one
   * that waits, if the engine has no `enqueue`; otherwise it goes to the queue. Absent: no call tries again at once.
   */
  readonly retryWithinMs?: number
  /** On a quorum: what each node said. Made when it is called. */
  readonly votes?: () => readonly NodeVote[]
}

/** `unknown` is not `lost`: the lease may be ours, but that could not be proved. */
export type Extension =
  | { readonly kind: 'held' }
  | { readonly kind: 'lost' }
  | { readonly kind: 'unknown'; readonly cause: Error }

/** What an engine answers to a release. */
export interface Release {
  /** It was still ours. */
  readonly ours: boolean
  /**
   * How many others, in other processes, are known to wait for it and must be let go first; 0 where the servers' own queue
   * decides.
   */
  readonly awaited: number
}

/** How the core hears of releases by other processes, until it is closed. */
export interface Watch {
  /** Resolves with true when every later release will be noticed, and with false when it may not be, so that the core must poll. */
  readonly armed: Promise<boolean>
  close(): void
}

/** The round trip of one step to a server. Several steps may share a command. */
export interface RoundTrip {
  readonly type: 'roundTrip'
  /** Which server, without a password. */
  readonly node: string
  readonly operation: string
  /** `silent`: there was no answer in time; a later answer is not reported. */
  readonly outcome: 'answered' | 'failed' | 'silent'
  readonly tookMs: number
  readonly cause?: Error
}

/** One lease on one resource. A resource that is held shared has one of these for each holder. */
export interface LeaseInfo {
  readonly resource: string
  readonly owner: string
  /** 0 for a lock of other software, which has none. */
  readonly token: bigint
  /** Undefined for a lock of other software that has no end. */
  readonly remainingMs: number | undefined
  /** True for a shared lease. */
  readonly shared?: boolean
  /**
   * True where nobody holds it: it is offered to this owner, the first in line, who has not taken it yet. Then it has no token,
   * and `remainingMs` is what is left of the offer.
   */
  readonly offered?: boolean
  /** What it is held for, if its holder said so. `locks.inspect` reads it from the owner; an engine need not. */
  readonly note?: string
  /** How long it has been held, where the engine knows it. */
  readonly heldMs?: number
  /** How many wait for it in the servers' own queue, where there is one; on Redis, how many processes. */
  readonly waiters?: number
  /** Those that wait in the servers' own queue, the first one first, where the engine knows them. */
  readonly line?: readonly InLine[]
}

/** A process that waits in the servers' own queue. */
export interface InLine {
  readonly owner: string
  /**
   * Since when it waits, in ms since 1970, where that is known: on Redis and etcd by its own clock, on ZooKeeper and in a file by ours.
   * On Redis and in a file it is since its own last release if that was later, because its place counts from there.
   */
  readonly since?: number
}

/** One thing that the doctor (`check()`) found on the servers. */
export interface Finding {
  /** Stable, for machines: 'redis/eviction-policy'. */
  readonly id: string
  readonly severity: 'ok' | 'note' | 'warning' | 'critical'
  /** The server that it was found on, where that matters. */
  readonly node?: string
  /** What was found. */
  readonly found: string
  /** What it means for the lock. */
  readonly meaning: string
  /** What to do about it. Absent when there is nothing to do. */
  readonly remedy?: string
}

/** How one server answered a moment ago. */
export interface NodeState {
  readonly node: string
  readonly roundTripMs: number | undefined
  /** How far its clock is ahead of ours, to within half of the round trip. Undefined where its clock cannot be read. */
  readonly clockOffsetMs: number | undefined
  /** It answers, but does not vote for this long: it restarted, or is new, and may have forgotten leases. */
  readonly sitsOutMs?: number
  /** That time begins with the next attempt to get a lease, because there has been none since the restart. */
  readonly sitsOutLater?: boolean
  /** Another one after each start of the server, where it tells: Redis and MongoDB do. */
  readonly run?: string
  /** Where it tells. */
  readonly memory?: ServerMemory
  /** Why it did not answer. */
  readonly error?: string
}

/** How full the memory of one server is, and what happens when it is full. */
export interface ServerMemory {
  /** What its data takes. */
  readonly usedBytes: number
  /** The most that it may take. Absent: there is no limit. */
  readonly limitBytes?: number
  /** How many keys the server has removed to make room, since it started. A lock may be among them. */
  readonly evictedKeys: number
}

/** What an engine promises, for programs. docs/guarantees.md says the same in words. */
export interface Guarantees {
  /** What "at most one holder at a time" depends on. The order of tokens does not depend on it while the counters are kept. */
  readonly exclusion: 'one process' | 'one machine' | 'clocks within the drift allowance'
  /** Which clock ends a lease that nobody renews. */
  readonly clock:
    | 'own process'
    | 'this machine'
    | 'the server'
    | 'the leader of the servers'
    | 'each server of the quorum'
  /** Where the fencing tokens come from. */
  readonly token: string
  /** What a granted lease survives. */
  readonly survives: {
    readonly serverRestart: 'yes' | 'no' | 'with fsync on every write'
    /** How many servers may be gone at the same time: a number, or fewer than half of them. */
    readonly lossOfServers: number | 'a minority'
    readonly failover: 'yes' | 'no' | 'not promised'
  }
  /**
   * Who is next. `by process`: the processes in the order in which they began to wait, each for its first caller. After its turn a
   * process comes behind those who waited meanwhile. The callers of a process come in their own order.
   */
  readonly order: 'first come, first served in one process' | 'first come, first served by process'
  /**
   * Whether there are shared leases: many readers, or one writer. A reader's token is greater than that of every writer before it,
   * and less than that of every writer after it. A reader that joins others should get their token: with a greater one, a guard that
   * it enters would take the others for stale.
   */
  readonly shared: boolean
}

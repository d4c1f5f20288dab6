import { inUnits, span } from './duration.ts'
import type { NodeVote } from './engine.ts'
import { whoIs } from './owner.ts'

/**
 * Why a lease is over. `released`, `moved` and `closed`: this process ended it. All others are losses. `unnoticed`: only its
 * release found that it had ended before. `gone`: it could not be adopted, because another owner has it.
 */
export type LossReason =
  | 'stolen'
  | 'unnoticed'
  | 'unreachable'
  | 'doubtful'
  | 'expired'
  | 'max-hold'
  | 'abandoned'
  | 'released'
  | 'moved'
  | 'gone'
  | 'closed'

/** An error as JSON: its own fields, with bigints as text, and its cause as the message of the cause. */
export interface ErrorJson {
  readonly name: string
  readonly code: string
  readonly message: string
  readonly resources: readonly string[]
  readonly cause?: string
  readonly [field: string]: unknown
}

/** The base of all errors of this package, except for wrong arguments: they are a `TypeError` or a `RangeError`. */
export abstract class RingfenceError extends Error {
  /** Stable, for programs. */
  abstract readonly code: string
  /** The resources it was about. */
  readonly resources: readonly string[]

  constructor(message: string, resources: readonly string[], cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = new.target.name
    this.resources = resources
  }

  /** For logs. */
  toJSON(): ErrorJson {
    const { name, code, message, resources, cause } = this
    const fields = Object.entries(this).map(([field, value]) => [field, plain(value)])
    return {
      ...Object.fromEntries(fields),
      name,
      code,
      message,
      resources,
      ...(cause === undefined ? {} : { cause: messageOf(cause) }),
    }
  }
}

function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return String(value)
  if (value instanceof Error) return value.message
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([field, content]) => [field, plain(content)]))
}

/** What else is known of a resource that is held. */
export interface HeldDetails {
  /** This process itself holds it. */
  readonly here?: HeldHere | undefined
  /** It is a semaphore with that many. */
  readonly permits?: number
  /** The owners of its permits, as far as they were seen. */
  readonly holders?: readonly string[]
  /** How many of its permits another process counts, where that is another number. */
  readonly otherPermits?: number | undefined
  /** All of its permits are held by the work that the call is inside of. */
  readonly isAround?: boolean
  /** Nobody has it: it is offered to the first in line. */
  readonly offered?: boolean | undefined
  /** Those who have it would share it, but a writer waits for it. */
  readonly writerWaits?: boolean | undefined
  readonly votes?: readonly NodeVote[] | undefined
}

/** Someone else holds the resource, or is to have it next, and the call was not to wait. */
export class HeldError extends RingfenceError {
  readonly code = 'HELD'
  /** The owner string of the lease in the way, where the engine knows it; or of the one to whom it is offered. The message has its label and note. */
  readonly holder: string | undefined
  /** How long that lease lasts unless it is renewed, or the offer, where the engine knows it. */
  readonly remainingMs: number | undefined
  /** Nobody holds it: it is offered to `holder`, the first in line, who has not taken it yet. Only on Redis, for two seconds at most. */
  readonly offered: boolean

  /** On a quorum: what each node said. */
  readonly votes: readonly NodeVote[] | undefined

  constructor(resources: readonly string[], holder?: string, remainingMs?: number, details: HeldDetails = {}) {
    const { here, permits, votes, offered = false, writerWaits = false } = details
    const left = remainingMs === undefined ? '' : `, for ${span(remainingMs)} more unless renewed`
    const other =
      notHeld(holder, offered, writerWaits) ?? `held by ${holder === undefined ? 'someone else' : whoIs(holder)}${left}`
    const by = here === undefined ? other : heldHere(here)
    super(permits === undefined ? `${named(resources)} is ${by}` : allHeld(resources, permits, details), resources)
    this.holder = holder
    this.remainingMs = remainingMs
    this.offered = offered && here === undefined
    this.votes = votes
  }
}

/**
 * The wait was over before the resource was ours. If the last attempt failed, or the engine gave no answer at all, the call
 * rejects with an `EngineError` instead.
 */
export class WaitTimeoutError extends RingfenceError {
  readonly code = 'WAIT_TIMEOUT'
  /** How long the call waited at most: its `wait`. */
  readonly waitMs: number
  /** The owner string of the lease in the way, where the engine knows it. */
  readonly holder: string | undefined

  constructor(resources: readonly string[], waitMs: number, holder?: string, details: HeldDetails = {}) {
    const { here, permits, offered = false, writerWaits = false } = details
    const other =
      notHeld(holder, offered, writerWaits) ?? (holder === undefined ? undefined : `held by ${whoIs(holder)}`)
    const by = here === undefined ? other : heldHere(here)
    const why = by === undefined ? '' : `, ${by}`
    const held =
      permits === undefined ? `for ${named(resources)}${why}` : `while ${allHeld(resources, permits, details)}`
    super(`waited ${inUnits(waitMs)} ${held}`, resources)
    this.waitMs = waitMs
    this.holder = holder
  }
}

/** The lease is no longer ours, or that it is ours can no longer be proved. */
export class LeaseLostError extends RingfenceError {
  readonly code = 'LEASE_LOST'
  readonly reason: LossReason

  /** `why`: in words, where more is known than the reason. */
  constructor(resources: readonly string[], reason: LossReason, cause?: unknown, why = LOSS_TEXT[reason]) {
    super(`the lease on ${named(resources)} is over: ${why}`, resources, cause)
    this.reason = reason
  }
}

const LOSS_TEXT: Record<LossReason, string> = {
  stolen: 'the engine says that it is no longer ours: somebody took it, or servers forgot it',
  unnoticed: 'its release found that it had ended before, so the work may not have been alone',
  unreachable: 'it could not be renewed before its validity ended',
  doubtful: 'a renewal failed, and it was not to be kept in doubt',
  expired: 'its time is up',
  'max-hold': 'it was held for as long as it may be',
  abandoned: 'it was garbage-collected without being released',
  released: 'it was released',
  moved: 'it was handed off to another process',
  gone:
    'another process has adopted it already, or its time was up before this one could; a ticket is good for one adoption, so acquire ' +
    'the resource anew',
  closed: 'its locks were closed',
}

/** All of them, for what comes from another process. */
export const LOSS_REASONS = Object.keys(LOSS_TEXT) as readonly LossReason[]

/** A store has seen a newer token: the process that tried to write is no longer the holder. */
export class StaleTokenError extends RingfenceError {
  readonly code = 'STALE_TOKEN'
  /** The token that was refused. */
  readonly token: bigint
  /** The newer one that the store has seen. */
  readonly seen: bigint

  constructor(resources: readonly string[], token: bigint, seen: bigint) {
    super(
      `token ${token} of ${named(resources)} is stale: ${seen} was seen; stop: a newer holder has taken over`,
      resources,
    )
    this.token = token
    this.seen = seen
  }
}

/** A store has a token of another engine for this resource, and tokens of different engines cannot be compared. */
export class ForeignTokenError extends RingfenceError {
  readonly code = 'FOREIGN_TOKEN'
  readonly token: bigint
  /** The engine that granted the token. */
  readonly engine: string
  /** The engine whose tokens the store has taken so far. */
  readonly seenEngine: string

  constructor(resources: readonly string[], token: bigint, engine: string, seenEngine: string) {
    super(
      `token ${token} of ${named(resources)} is of the engine '${engine}', but the store has tokens of '${seenEngine}', ` +
        `which count differently. If '${engine}' is the engine that you moved away from, stop. If it is the new one, and no ` +
        `holder of the old one is left, adopt(lease, '${seenEngine}')`,
      resources,
    )
    this.token = token
    this.engine = engine
    this.seenEngine = seenEngine
  }
}

/** A guard could not do what was asked, for a reason other than the token. */
export class GuardError extends RingfenceError {
  readonly code = 'GUARD'
  /** False when trying again cannot help. */
  readonly transient: boolean

  constructor(message: string, resources: readonly string[], options: { cause?: unknown; transient?: boolean } = {}) {
    super(message, resources, options.cause)
    this.transient = options.transient ?? true
  }
}

/** The engine could not do what was asked. Whether it took effect may be unknown. */
export class EngineError extends RingfenceError {
  readonly code: 'ENGINE' | 'QUORUM' = 'ENGINE'
  /** False when trying again cannot help (no permission, wrong password, a key of another type). */
  readonly transient: boolean

  constructor(message: string, resources: readonly string[], options: { cause?: unknown; transient?: boolean } = {}) {
    super(message, resources, options.cause)
    this.transient = options.transient ?? true
  }
}

/** What one node of a quorum did instead of voting for us. */
export interface NodeFailure {
  readonly node: string
  readonly cause: Error
}

/** Too few nodes answered. `nodes` lists each node that failed, and why. */
export class QuorumError extends EngineError {
  override readonly code = 'QUORUM'
  /** The nodes that gave no vote, each with its cause. */
  readonly nodes: readonly NodeFailure[]
  /** How many votes are needed. */
  readonly quorum: number
  /** How many nodes there are. */
  readonly size: number

  constructor(
    resources: readonly string[],
    detail: { quorum: number; size: number; nodes: readonly NodeFailure[]; transient?: boolean },
  ) {
    const causes = detail.nodes.map(({ node, cause }) => `${node}: ${cause.message}`).join('; ')
    const about = resources.length === 0 ? '' : ` for ${named(resources)}`
    super(`no quorum${about}: ${detail.quorum} of ${detail.size} nodes needed (${causes})`, resources, {
      transient: detail.transient ?? true,
      ...(detail.nodes[0] === undefined ? {} : { cause: detail.nodes[0].cause }),
    })
    this.nodes = detail.nodes
    this.quorum = detail.quorum
    this.size = detail.size
  }
}

/** What keeps it from a caller, if that is no lease. */
function notHeld(holder: string | undefined, offered: boolean, writerWaits: boolean): string | undefined {
  if (writerWaits) return waitedFor(holder)
  return offered
    ? `offered to ${holder === undefined ? 'someone else' : whoIs(holder)}, the first in line, which has not taken it yet`
    : undefined
}

/** A reader is kept out by a writer that came before it, not by those who read. */
function waitedFor(holder: string | undefined): string {
  return `shared${holder === undefined ? '' : ` by ${whoIs(holder)}`}, and a writer waits for it, which keeps later readers out`
}

/** How many holders of permits an error names. */
const MOST_NAMED = 3

function allHeld(
  pool: readonly string[],
  permits: number,
  { holders = [], otherPermits, isAround = false }: HeldDetails,
): string {
  const itself = isAround
    ? '; this call is inside of the work that holds what there is, and waits for itself: take one permit, and hand it on'
    : ''
  const more = holders.length > MOST_NAMED ? ` and ${holders.length - MOST_NAMED} more` : ''
  const by = holders.length === 0 ? '' : `, by ${holders.slice(0, MOST_NAMED).map(whoIs).join(', ')}${more}`
  const held =
    permits === 1 ? `the one permit of ${named(pool)} was held` : `all ${permits} permits of ${named(pool)} were held`
  const differ = `; a holder counts ${otherPermits} permits and this process ${permits}: give all of them the same number`
  return `${held}${by}${otherPermits === undefined ? '' : differ}${itself}`
}

/** This process itself holds it. */
export interface HeldHere {
  readonly owner: string
  readonly forMs: number
  /** Whether the call is known to be inside of the `using` that holds it. */
  readonly isInside: boolean
  /** Whether it is shared: then the call is one to write. */
  readonly shared?: boolean
}

export function heldHere({ forMs, isInside, shared = false }: HeldHere): string {
  if (shared) {
    const inside = isInside ? 'this call is inside of the one that reads, and' : 'a call inside of the one that reads'
    return `shared by this very process for ${span(forMs)}; ${inside} waits for itself: take the outer lease without shared`
  }
  const since = `held by this very process for ${span(forMs)}`
  if (!isInside) return `${since}. A lease is not re-entrant: is this call inside of the one that holds it?`
  return `${since}; this call is inside of the one that holds it: use that lease, or give both calls reentrant: true`
}

/** Resource names as a message shows them. */
export function named(resources: readonly string[]): string {
  return resources.map((resource) => `'${resource}'`).join(', ')
}

/** What an engine failed with, as an `EngineError`. */
export function engineErrorOf(cause: unknown, engine: string, resources: readonly string[]): EngineError {
  if (cause instanceof EngineError) return cause
  return new EngineError(`${engine}: ${messageOf(cause)}`, resources, { cause, transient: false })
}

/** JavaScript can throw anything; this makes an `Error` of it. */
export function asError(cause: unknown): Error {
  return cause instanceof Error ? cause : new Error(messageOf(cause))
}

export function messageOf(cause: unknown): string {
  try {
    // Test runners and workers hand on what was in an error as a plain object, which may have no prototype.
    const { message } = Object(cause) as { message?: unknown }
    return typeof message === 'string' ? message : String(cause)
  } catch {
    return 'something that has no text'
  }
}

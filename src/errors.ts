/** Why a lease is over. `released` and `closed` are our own doing; the others are losses. */
export type LossReason = 'stolen' | 'unreachable' | 'expired' | 'abandoned' | 'released' | 'closed'

abstract class RingfenceError extends Error {
  abstract readonly code: string
  /** The resources it was about. */
  readonly resources: readonly string[]

  constructor(message: string, resources: readonly string[], cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = new.target.name
    this.resources = resources
  }
}

/** Someone else has it, and we were told not to wait. */
export class HeldError extends RingfenceError {
  readonly code = 'HELD'
  /** The owner string of the lease in the way, where the engine knows it. */
  readonly holder: string | undefined
  /** How long that lease lasts unless it is renewed, where the engine knows it. */
  readonly remainingMs: number | undefined

  constructor(resources: readonly string[], holder?: string, remainingMs?: number) {
    const left = remainingMs === undefined ? '' : `, for ${Math.ceil(remainingMs)} ms more unless renewed`
    super(`${named(resources)} is held by ${holder ?? 'someone else'}${left}`, resources)
    this.holder = holder
    this.remainingMs = remainingMs
  }
}

/** The wait was over before the resource was ours. */
export class WaitTimeoutError extends RingfenceError {
  readonly code = 'WAIT_TIMEOUT'
  readonly waitMs: number
  readonly holder: string | undefined

  constructor(resources: readonly string[], waitMs: number, holder?: string, answered = true) {
    const why =
      holder === undefined ? (answered ? '' : ', and had no answer from the engine yet') : `, held by ${holder}`
    super(`waited ${waitMs} ms for ${named(resources)}${why}`, resources)
    this.waitMs = waitMs
    this.holder = holder
  }
}

/** The lease is not, or no longer provably, ours. */
export class LeaseLostError extends RingfenceError {
  readonly code = 'LEASE_LOST'
  readonly reason: LossReason

  constructor(resources: readonly string[], reason: LossReason, cause?: unknown) {
    super(`the lease on ${named(resources)} is over: ${LOSS_TEXT[reason]}`, resources, cause)
    this.reason = reason
  }
}

const LOSS_TEXT: Record<LossReason, string> = {
  stolen: 'the engine says that it is no longer ours',
  unreachable: 'it could not be renewed before its validity ended',
  expired: 'its time is up',
  abandoned: 'it was garbage-collected without being released',
  released: 'it was released',
  closed: 'its locks were closed',
}

/** A store saw a newer token: the one who tried to write is no longer the holder. */
export class StaleTokenError extends RingfenceError {
  readonly code = 'STALE_TOKEN'
  readonly token: bigint
  readonly seen: bigint

  constructor(resources: readonly string[], token: bigint, seen: bigint) {
    super(`token ${token} of ${named(resources)} is stale: ${seen} was seen`, resources)
    this.token = token
    this.seen = seen
  }
}

/** A store has a token of another engine for this resource: numbers of different engines can't be compared. */
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
        'which count differently; when no holder of the old engine is left, adopt() the new one',
      resources,
    )
    this.token = token
    this.engine = engine
    this.seenEngine = seenEngine
  }
}

/** A guard could not do what was asked, for another reason than the token. */
export class GuardError extends RingfenceError {
  readonly code = 'GUARD'
  /** False when trying again can't help. */
  readonly transient: boolean

  constructor(message: string, resources: readonly string[], options: { cause?: unknown; transient?: boolean } = {}) {
    super(message, resources, options.cause)
    this.transient = options.transient ?? true
  }
}

/** The engine could not do what was asked; whether it took effect may be unknown. */
export class EngineError extends RingfenceError {
  readonly code: 'ENGINE' | 'QUORUM' = 'ENGINE'
  /** False when trying again can't help (no permission, wrong password, a key of another type). */
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

/** Too few nodes answered. `nodes` tells of each one that failed, and why. */
export class QuorumError extends EngineError {
  override readonly code = 'QUORUM'
  readonly nodes: readonly NodeFailure[]
  readonly quorum: number
  readonly size: number

  constructor(
    resources: readonly string[],
    detail: { quorum: number; size: number; nodes: readonly NodeFailure[]; transient?: boolean },
  ) {
    const causes = detail.nodes.map(({ node, cause }) => `${node}: ${cause.message}`).join('; ')
    super(`no quorum for ${named(resources)}: ${detail.quorum} of ${detail.size} nodes needed (${causes})`, resources, {
      transient: detail.transient ?? true,
      ...(detail.nodes[0] === undefined ? {} : { cause: detail.nodes[0].cause }),
    })
    this.nodes = detail.nodes
    this.quorum = detail.quorum
    this.size = detail.size
  }
}

function named(resources: readonly string[]): string {
  return resources.map((resource) => `'${resource}'`).join(', ')
}

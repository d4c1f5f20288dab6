/** What the nodes said to one attempt, as redlock tells it. */
export interface ExecutionStats<Client = object> {
  readonly membershipSize: number
  readonly quorumSize: number
  readonly votesFor: Set<Client>
  readonly votesAgainst: Map<Client, Error>
}

/** What one node said. */
export type ClientExecutionResult<Client = object> =
  | { client: Client; vote: 'for'; value: number }
  | { client: Client; vote: 'against'; error: Error }

export type RedlockAttempts<Client = object> = readonly Promise<ExecutionStats<Client>>[]

/** What a call to several nodes came to, with the votes of each attempt. */
export interface ExecutionResult<Client = object> {
  attempts: RedlockAttempts<Client>
}

/** A node has another lock on one or more of the resources. */
export class ResourceLockedError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'ResourceLockedError'
  }
}

/** An operation had no quorum. `cause`: what ringfence says about it. */
export class ExecutionError<Client = object> extends Error {
  readonly attempts: RedlockAttempts<Client>

  constructor(message: string, attempts: RedlockAttempts<Client>, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = 'ExecutionError'
    this.attempts = attempts
  }
}

/** What the calls of redlock 4 fail with. */
export class LockError extends Error {
  /** How many attempts were made. */
  readonly attempts: number | undefined

  constructor(message = 'Failed to lock the resource.', attempts?: number, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = 'LockError'
    this.attempts = attempts
  }
}

/** The messages of redlock, for programs that look at them. */
export const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.'
export const EXPIRED = 'Cannot extend an already-expired lock.'
export const NOT_WHOLE = 'Duration must be an integer value in milliseconds.'

export function lockedError(resources: number): ResourceLockedError {
  return new ResourceLockedError(`The operation was applied to: 0 of the ${resources} requested resources.`)
}

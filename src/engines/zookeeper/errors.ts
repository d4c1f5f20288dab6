import type { EngineError } from '../../errors.ts'
import { engineErrorFrom } from '../shared/errors.ts'
import { property } from '../shared/shape.ts'

/** ZooKeeper's own numbers. */
export const CODE = {
  connectionLoss: -4,
  badArguments: -8,
  noNode: -101,
  noAuth: -102,
  badVersion: -103,
  nodeExists: -110,
  notEmpty: -111,
  sessionExpired: -112,
  invalidAcl: -114,
  authFailed: -115,
}

const PERMANENT: readonly number[] = [CODE.badArguments, CODE.noAuth, CODE.invalidAcl, CODE.authFailed]

/** The server has answered and refused: nothing was done. */
export class RefusedError extends Error {
  readonly code: number
  /** Trying again cannot help. */
  readonly isPermanent: boolean

  constructor(code: number, cause: unknown) {
    super(cause instanceof Error ? cause.message : `error ${code}`, { cause })
    this.name = 'RefusedError'
    this.code = code
    this.isPermanent = PERMANENT.includes(code)
  }
}

/** No answer came: the request may have been done, or may still be done. */
export class UnknownOutcomeError extends Error {
  override readonly name = 'UnknownOutcomeError'
}

/** The request was not sent. */
export class NotConnectedError extends Error {
  override readonly name = 'NotConnectedError'
  /** Trying again cannot help. */
  readonly isPermanent: boolean

  constructor(message: string, isPermanent = false) {
    super(message)
    this.isPermanent = isPermanent
  }
}

export function isCode(error: unknown, ...codes: readonly number[]): error is RefusedError {
  return error instanceof RefusedError && codes.includes(error.code)
}

/** What the error of a driver's callback means. */
export function readError(error: unknown): Error {
  const code = property(error, 'code')
  if (typeof code !== 'number' || code === CODE.connectionLoss || code === CODE.sessionExpired) {
    return new UnknownOutcomeError('the connection was lost before the answer came', { cause: error })
  }
  return new RefusedError(code, error)
}

export function zookeeperFailure(error: unknown, resources: readonly string[]): EngineError {
  const isPermanent = (error instanceof RefusedError || error instanceof NotConnectedError) && error.isPermanent
  return engineErrorFrom(error, 'zookeeper', resources, { isPermanent })
}

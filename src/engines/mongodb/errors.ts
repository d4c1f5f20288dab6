import { asError, type EngineError } from '../../errors.ts'
import { engineErrorFrom } from '../shared/errors.ts'

/** Some of the server's messages repeat the whole command. The cause has all of it. */
const LONGEST_MESSAGE = 200

export function mongodbError(cause: unknown, resources: readonly string[]): EngineError {
  const error = asError(cause)
  const { message } = error
  const short = message.length > LONGEST_MESSAGE ? `${message.slice(0, LONGEST_MESSAGE)}…` : message
  return engineErrorFrom(error, 'mongodb', resources, { message: short, isPermanent: isPermanent(error) })
}

const CONVERSION_FAILURE = 241
/** Another client has just inserted the document. It is there now and stays, so the next try finds it. */
export const DUPLICATE_KEY = 11_000

/** The server's codes for failures that stay the same at every retry. */
const PERMANENT_CODES = new Set([
  2, // BadValue: the server has no journal to write to
  9, // FailedToParse: the server does not know pipelines in updates
  11, // UserNotFound
  13, // Unauthorized
  14, // TypeMismatch: the token in the document is not a number
  18, // AuthenticationFailed
  73, // InvalidNamespace
  79, // UnknownReplWriteConcern
  100, // UnsatisfiableWriteConcern
  121, // DocumentValidationFailure
  166, // CommandNotSupportedOnView
  CONVERSION_FAILURE, // the token in the document is not a number
  8000, // Atlas answers with this code in place of 18
])

/** The driver's own errors that stay the same at every retry. */
const PERMANENT_NAMES = new Set([
  'MongoAuthenticationError',
  'MongoClientClosedError',
  'MongoInvalidArgumentError',
  'MongoNotConnectedError',
  'MongoTopologyClosedError',
])

/** No retry helps: wrong credentials, missing permissions, a closed client, a view in place of a collection. */
export function isPermanent(error: Error): boolean {
  return PERMANENT_NAMES.has(error.name) || PERMANENT_CODES.has(codeOf(error))
}

/** The server's code of an error; NaN for an error that the server did not send. */
export function codeOf(error: unknown): number {
  const { code } = error as { code?: unknown }
  return typeof code === 'number' ? code : Number.NaN
}

/** The statement of `takeWith` has failed, as it does if it may not take the resource; or two have just inserted the same document. */
export function isTaken(error: unknown): boolean {
  return [CONVERSION_FAILURE, DUPLICATE_KEY].includes(codeOf(error))
}

import type { Deadlines } from '../../deadlines.ts'
import { EngineError } from '../../errors.ts'

/** Options of a request that bound it: the driver gives up with the signal, the server by its own clock. */
export interface Bounds {
  readonly signal: AbortSignal
  readonly maxTimeMS: number
}

/** No answer in time. What was asked for may still be done, at any time until `settled`, and by a frozen server later. */
export class SilentError extends Error {
  /** Never rejects. */
  readonly settled: Promise<void>

  constructor(timeoutMs: number, settled: Promise<void>) {
    super(`no answer within ${Math.round(timeoutMs)} ms`)
    this.name = 'SilentError'
    this.settled = settled
  }
}

/**
 * Sends a request with a deadline of our own. The driver's are of no use: looking for a primary takes it up to 30 s, and
 * it waits for a silent server for ever. The signal ends both; then a request that was not sent yet never is, and the
 * connection of one that was is closed. Drivers that don't know the signal go on: `settled` tells when they are done.
 */
export function within<T>(deadlines: Deadlines, timeoutMs: number, send: (bounds: Bounds) => Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const controller = new AbortController()
    const answer = started(() => send({ signal: controller.signal, maxTimeMS: Math.ceil(timeoutMs) }))
    const deadline = deadlines.start(timeoutMs, () => {
      const settled = answer.then(
        () => undefined,
        () => undefined,
      )
      const silent = new SilentError(timeoutMs, settled)
      reject(silent)
      controller.abort(silent)
    })
    answer.then(resolve, reject).finally(() => deadline.cancel())
  })
}

/** A driver may throw at once, too. */
async function started<T>(work: () => Promise<T>): Promise<T> {
  return work()
}

export function asError(cause: unknown): Error {
  return cause instanceof Error ? cause : new Error(String(cause))
}

export function engineError(cause: unknown, resources: readonly string[]): EngineError {
  const error = asError(cause)
  const { message } = error
  const short = message.length > LONGEST_MESSAGE ? `${message.slice(0, LONGEST_MESSAGE)}…` : message
  return new EngineError(`mongodb: ${short}`, resources, { cause: error, transient: !isPermanent(error) })
}

/** Some of the server's messages repeat the whole command. The cause has all of it. */
const LONGEST_MESSAGE = 200

/** The server's codes that stay the same however often one asks. */
const PERMANENT_CODES = new Set([
  2, // BadValue: no journal to write to
  9, // FailedToParse: a server that knows no pipeline in an update
  11, // UserNotFound
  13, // Unauthorized
  14, // TypeMismatch: a token that is no number
  18, // AuthenticationFailed
  73, // InvalidNamespace
  79, // UnknownReplWriteConcern
  100, // UnsatisfiableWriteConcern
  121, // DocumentValidationFailure
  166, // CommandNotSupportedOnView
  241, // ConversionFailure: the same
  8000, // what Atlas says instead of 18
])

/** The driver's own words for what no retry cures. */
const PERMANENT_NAMES = new Set([
  'MongoAuthenticationError',
  'MongoClientClosedError',
  'MongoInvalidArgumentError',
  'MongoNotConnectedError',
  'MongoTopologyClosedError',
])

/** No retry cures this one: credentials, permissions, a client that was closed, a collection that is none. */
export function isPermanent(error: Error): boolean {
  return PERMANENT_NAMES.has(error.name) || PERMANENT_CODES.has(codeOf(error))
}

/** The server's code for what went wrong; NaN if it was not the server that said so. */
export function codeOf(error: unknown): number {
  const { code } = error as { code?: unknown }
  return typeof code === 'number' ? code : Number.NaN
}

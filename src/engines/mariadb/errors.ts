import { property } from '../shared/shape.ts'
import { AnswerError } from '../shared/sql/client.ts'
import type { FailureKind } from '../shared/sql/steps.ts'

/** An addition that overflows, by which a statement that may not take a row fails. */
const OUT_OF_RANGE = 1690
/** A deadlock, a lock that was not free within the server's own time limit, a row that changed under a snapshot. */
const AGAIN = [1213, 1205, 1020]
const NO_TABLE = 1146
const NO_COLUMN = 1054
const DUPLICATE_COLUMN = 1060
const SYNTAX = 1064
/** Wrong password, no such database, forbidden or wrong statements. */
const NEVER = [1044, 1045, 1046, 1049, SYNTAX, 1142, 1143, 1227, 1305, 1370, 1698]
/** The server shuts down, or someone ended the connection or the statement. */
const UNKNOWN = [1053, 1317, 1927]
/** The mariadb driver's pool had no connection for us, so that nothing was sent. */
const POOL_TIMEOUT = 45_028

/** The session does not commit what it does: others would never see a lease. */
export class AutocommitError extends Error {
  constructor() {
    super('autocommit is off on this connection, so that nobody else would see a lease: turn it on')
  }
}

export function isRaced(error: unknown): boolean {
  return errorNumber(error) === OUT_OF_RANGE
}

/** Somebody else has just added it. */
export function isColumnThere(error: unknown): boolean {
  return errorNumber(error) === DUPLICATE_COLUMN
}

/** The server does not know the statement. */
export function isSyntaxError(error: unknown): boolean {
  return errorNumber(error) === SYNTAX
}

export function failureKind(error: unknown): FailureKind {
  if (error instanceof AnswerError || error instanceof AutocommitError) return 'never'
  const number = errorNumber(error)
  if (AGAIN.includes(number)) return 'again'
  if (number === NO_TABLE) return 'no table'
  if (number === NO_COLUMN) return 'other table'
  if (NEVER.includes(number)) return 'never'
  if (number === POOL_TIMEOUT || property(error, 'syscall') === 'connect') return 'undone'
  return isAnswer(error) ? 'undone' : 'unknown'
}

/** The server itself has said so. */
export function isAnswer(error: unknown): boolean {
  const number = errorNumber(error)
  // Errors from 2000 to 2999 are of clients: the connection broke.
  const isOfServer = (number >= 1000 && number < 2000) || (number >= 3000 && number < 5000)
  return isOfServer && !UNKNOWN.includes(number)
}

/** The server's error number; software around a driver keeps the driver's error as a cause. */
export function errorNumber(error: unknown): number {
  const number = property(error, 'errno')
  if (typeof number === 'number') return number
  const cause = property(error, 'cause')
  return cause === undefined ? 0 : errorNumber(cause)
}

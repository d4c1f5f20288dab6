import type { Verdict } from '../sql/table.ts'
import { AnswerError } from './client.ts'

/** An addition that goes over, by which a statement that may not take a row fails. */
const OUT_OF_RANGE = 1690
/** A deadlock, a lock that was not to be had in the server's own time, a row that changed under a snapshot. */
const AGAIN = [1213, 1205, 1020]
const NO_TABLE = 1146
/** Wrong password, no such database, forbidden or wrong statements. */
const NEVER = [1044, 1045, 1046, 1049, 1054, 1064, 1142, 1143, 1227, 1305, 1370, 1698]
/** The server goes down, or someone ended the connection or the statement. */
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
  return errno(error) === OUT_OF_RANGE
}

export function verdict(error: unknown): Verdict {
  if (error instanceof AnswerError || error instanceof AutocommitError) return 'never'
  const number = errno(error)
  if (AGAIN.includes(number)) return 'again'
  if (number === NO_TABLE) return 'no table'
  if (NEVER.includes(number)) return 'never'
  if (number === POOL_TIMEOUT || isUnsent(error)) return 'undone'
  return number >= 1000 && number < 5000 && !isConnectionLoss(number) ? 'undone' : 'unknown'
}

/** Errors from 2000 to 2999 are of clients: the connection broke. */
function isConnectionLoss(number: number): boolean {
  return UNKNOWN.includes(number) || (number >= 2000 && number < 3000)
}

function isUnsent(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && error.syscall === 'connect'
}

function errno(error: unknown): number {
  return error instanceof Error && 'errno' in error && typeof error.errno === 'number' ? error.errno : 0
}

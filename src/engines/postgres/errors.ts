import { AnswerError } from '../shared/sql/client.ts'
import type { FailureKind } from '../shared/sql/steps.ts'
import { RACED } from './statements.ts'

/** Serialization failure, deadlock, a lock that was not free within the server's own lock_timeout. */
const AGAIN = ['40001', '40P01', '55P03']
/** Wrong password, no such database or schema, forbidden or wrong statements, values that cannot be stored. */
const NEVER = /^(28|42|22|0A|0L|0P|3D|3F)/
/** The connection broke, the server is going down, or the server itself says that the completion of the statement is unknown. */
const UNKNOWN = /^(08|57P|40003)/

/** Session-level state is not kept: a pooler lends out the server's connections for single transactions. */
export class PoolerError extends Error {
  constructor(detail: string) {
    super(
      `a pooler is between us and PostgreSQL and lends out its connections for single transactions (${detail}): ` +
        'connect to the server itself, or use postgres(client), which works through a pooler',
    )
  }
}

/** The server's error code; software around a driver keeps the driver's error as a cause. */
export function sqlState(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined
  const code = 'code' in error ? error.code : undefined
  if (typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && /\d/.test(code)) return code
  return sqlState(error.cause)
}

export function isRaced(error: unknown): boolean {
  return sqlState(error) === '22P02' && error instanceof Error && error.message.includes(RACED)
}

export function failureKind(error: unknown): FailureKind {
  if (error instanceof PoolerError || error instanceof AnswerError) return 'never'
  const state = sqlState(error)
  if (state === undefined) return isUnsent(error) ? 'undone' : 'unknown'
  if (AGAIN.includes(state)) return 'again'
  if (state === '42P01') return 'no table'
  if (state === '42703') return 'other table'
  if (NEVER.test(state)) return 'never'
  return UNKNOWN.test(state) ? 'unknown' : 'undone'
}

/** There was no connection, so nothing was sent. */
function isUnsent(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('syscall' in error && (error.syscall === 'connect' || error.syscall === 'getaddrinfo')) return true
  return error instanceof AggregateError && error.errors.length > 0 && error.errors.every(isUnsent)
}

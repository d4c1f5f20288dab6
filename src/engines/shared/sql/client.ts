import { property } from '../shape.ts'
import type { Isolation } from './transaction.ts'

/** A row as our statements ask for it: every column is text. */
export type SqlRow = Readonly<Record<string, string | null>>

/** Runs one statement and returns its rows. Rejects with the driver's error. */
export type SqlQuery = (text: string, params: readonly (string | Uint8Array | null)[]) => Promise<readonly SqlRow[]>

/**
 * Runs the work within a transaction on a connection that nobody else uses meanwhile, and passes it what the driver hands over for
 * that. Commits when the work resolves, and otherwise rolls back. Rejects with `EndedTransactionError` when nothing was
 * committed, or when the work has ended the transaction by itself.
 */
export type RunTransaction = <T>(
  work: (tx: unknown, query: SqlQuery) => Promise<T>,
  isolation?: Isolation,
) => Promise<T>

/** A client that can open transactions. */
export interface TransactionalClient {
  readonly query: SqlQuery
  readonly transaction: RunTransaction
}

/** Runs one statement with its parameters in an open transaction, and resolves to its rows or to `{ rows }`. */
export type RunStatement = (text: string, params: unknown[]) => Promise<unknown>

/** The client answers in a way that no driver of this database does. */
export class AnswerError extends TypeError {}

/** The rows of an answer: an array of them, `{ rows }` (pg, PGlite), or an array of rows and fields (mysql2). */
export function rowsIn(result: unknown): readonly SqlRow[] | undefined {
  const rows = Array.isArray(result) ? (Array.isArray(result[0]) ? result[0] : result) : property(result, 'rows')
  return Array.isArray(rows) ? rows : undefined
}

export function rowsOf(result: unknown): readonly SqlRow[] {
  const rows = rowsIn(result)
  if (rows !== undefined) return rows
  throw new AnswerError('expected query(text, params) to answer with { rows } or an array of rows')
}

/** Only an answer of another shape lacks the column: the client is not what it seemed, or it renames columns. */
export function columnText(row: SqlRow | undefined, column: string): string {
  const value = row?.[column]
  if (typeof value === 'string') return value
  throw new AnswerError(`expected rows with a text column '${column}' from the client, got ${JSON.stringify(row)}`)
}

import { shown } from '../../duration.ts'

/** A row as the statements here ask for it: every column is text. */
export type Row = Readonly<Record<string, string | null>>

export interface Answer {
  readonly rows: readonly Row[]
  readonly affected: number
}

/** Runs one statement. Rejects with the driver's error, whose `errno` is the server's. */
export type Run = (sql: string) => Promise<Answer>

/** A pool or connection of mariadb or mysql2, or any object with `query(sql)` that answers as one of them does. */
export interface MariadbLike {
  query(...args: never[]): unknown
}

/** The client answers in a way that neither driver does. */
export class AnswerError extends TypeError {}

/** Whatever the user has set for the shape of rows, ours are objects; the options of both drivers, each ignores the other's. */
const SHAPE = { rowsAsArray: false, nestTables: false, namedPlaceholders: false, metaAsArray: false }

/** Turns the user's own client into what the engine needs, or says at once what was expected and what came. */
export function recognise(client: unknown): Run {
  // mysql2 with callbacks has its promises at hand.
  if (hasMethods(client, 'query', 'execute', 'promise')) return recognise(client.promise())
  if (!hasMethods(client, 'query')) {
    throw new TypeError(
      `expected a pool or connection of mariadb or mysql2, or an object with query(sql); got ${shown(client)}`,
    )
  }
  const asked = client as { query(sql: unknown): unknown }
  const isDriver = hasMethods(client, 'query', 'execute')
  return async (sql) => {
    const result = asked.query(isDriver ? { sql, ...SHAPE } : sql)
    if (!isPromise(result)) {
      throw new AnswerError(
        "expected query() to return a promise, got none: import 'mariadb' or 'mysql2/promise', not 'mariadb/callback'",
      )
    }
    return answerOf(await result)
  }
}

/** mariadb answers with the rows, or with an object that counts them; mysql2 with that and the columns in an array. */
function answerOf(result: unknown): Answer {
  const isPair = Array.isArray(result) && result.length === 2 && (Array.isArray(result[0]) || isCount(result[0]))
  const answer: unknown = isPair ? result[0] : result
  if (Array.isArray(answer)) return { rows: answer as Row[], affected: 0 }
  if (isCount(answer)) return { rows: [], affected: Number(answer.affectedRows) }
  throw new AnswerError('expected query(sql) to answer with rows or with affectedRows')
}

function isCount(value: unknown): value is { affectedRows: unknown } {
  return typeof value === 'object' && value !== null && 'affectedRows' in value
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return hasMethods(value, 'then')
}

function hasMethods<Name extends string>(value: unknown, ...names: Name[]): value is Record<Name, () => unknown> {
  if (typeof value !== 'object' || value === null) return false
  return names.every((name) => typeof Reflect.get(value, name) === 'function')
}

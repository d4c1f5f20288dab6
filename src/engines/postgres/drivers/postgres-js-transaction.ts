import { readFile } from 'node:fs/promises'
import { rowsOf, type SqlQuery } from '../../shared/sql/client.ts'
import { endedByWork, isOver, type Isolation } from '../../shared/sql/transaction.ts'
import { isEnding, proved } from './open-transaction.ts'

export interface PostgresJsTransaction {
  (first: unknown, ...rest: unknown[]): unknown
  unsafe(text: string, params?: unknown[], options?: object): PromiseLike<unknown>
  file(path: string, ...rest: unknown[]): unknown
  savepoint(...given: unknown[]): Promise<unknown>
}

export interface BeginsTransactions {
  begin<T>(options: string, work: (tx: PostgresJsTransaction) => Promise<T>): Promise<T>
}

/** A query of postgres.js: sent by its handler, when it is first awaited. */
interface PostgresJsStatement extends Promise<unknown> {
  handler: StatementHandler
  strings: readonly string[]
  reject(error: unknown): void
}

type StatementHandler = ((statement: PostgresJsStatement) => unknown) & { debug?: unknown }

/** A connection of postgres.js: an object that lives on, with another socket and for other users. */
interface PostgresJsConnection {
  reserved: unknown
  onclose?: ((error: unknown) => void) | null
}

/**
 * When a connection ends, postgres.js rejects, but does not stop the work: what the work sends later goes over the
 * connection that replaced the first, outside of any transaction or inside of another one. So does the ROLLBACK or COMMIT that postgres.js sends when the work has settled.
 */
export function inTransaction<T>(
  sql: BeginsTransactions,
  work: (tx: unknown, query: SqlQuery) => Promise<T>,
  isolation: Isolation | undefined,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const begun = sql.begin(isolation === undefined ? '' : `isolation level ${isolation}`, (tx) => {
      const tie = new ConnectionTie(tx)
      const proven = proved(tie.query, () => work(tie.handOver(tx), tie.query).finally(() => tie.close()))
      return tie.whileItHolds(proven, reject)
    })
    begun.then(resolve, reject)
  })
}

/** Between a transaction and the connection that it was begun on. */
class ConnectionTie {
  readonly query: SqlQuery
  #connection: PostgresJsConnection | undefined
  /** What postgres.js sets on a connection for each transaction, and takes away when that has ended in any way. */
  #reserved: unknown
  /** The backend, kept up to date by postgres.js, and its number when the transaction began. */
  #backend: { readonly pid?: number } | undefined
  #pid: number | undefined
  #isLost = false
  #isClosed = false

  constructor(tx: PostgresJsTransaction) {
    const options = { onexecute: (connection: PostgresJsConnection) => this.#meet(connection) }
    this.query = async (text, params) => {
      const statement = tx.unsafe(text, [...params], options)
      const result = await this.#gated(statement, () => this.#broken())
      this.#backend ??= (result as { state?: { pid?: number } }).state
      this.#pid ??= this.#backend?.pid
      return rowsOf(result)
    }
  }

  /** The work has settled: nothing more of it belongs to the transaction. */
  close(): void {
    this.#isClosed = true
  }

  /** The driver's own transaction, which sends nothing over another connection, and nothing that would end it. */
  handOver(tx: PostgresJsTransaction): PostgresJsTransaction {
    const refusal = ({ strings }: PostgresJsStatement): Error | undefined =>
      this.#refusal() ?? (isEnding(strings[0]) ? endedByWork() : undefined)
    const own: Record<string, unknown> = {
      unsafe: (...given: Parameters<typeof tx.unsafe>) => this.#gated(tx.unsafe(...given), refusal),
      file: (path: string, ...rest: unknown[]) => {
        // The text is not known before, and the transaction may be over after it was read.
        const statement = tx.file(path, ...rest) as PostgresJsStatement
        const { handler } = this.#gated(tx.unsafe(''), refusal) as PostgresJsStatement
        const read = async (): Promise<void> => {
          statement.strings = [await readFile(path, 'utf8')]
          handler(statement)
        }
        statement.handler = Object.assign(() => void read().catch((error: unknown) => statement.reject(error)), {
          debug: handler.debug,
        })
        return statement
      },
      savepoint: (...given: unknown[]) => this.#savepoint(tx, given),
      prepare: () => {
        throw endedByWork()
      },
    }
    return new Proxy(tx, {
      apply: (target, self, given) => this.#gated(Reflect.apply(target, self, given), refusal),
      get: (target, name) =>
        typeof name === 'string' && Object.hasOwn(own, name) ? own[name] : (Reflect.get(target, name) as unknown),
    })
  }

  /** What postgres.js waits for before it commits or rolls back: forever, where it would do that to another transaction. */
  whileItHolds<T>(work: Promise<T>, instead: (error: unknown) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      work.then(
        (value) => {
          const error = this.#broken()
          if (error === undefined) resolve(value)
          else instead(error)
        },
        (error: unknown) => {
          if (this.#broken() === undefined) reject(error)
          else instead(this.#isLost ? error : endedByWork(error))
        },
      )
    })
  }

  #savepoint(tx: PostgresJsTransaction, given: unknown[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const refused = this.#refusal()
      if (refused !== undefined) throw refused
      const last = given.at(-1)
      const [name, work] =
        typeof last === 'function'
          ? [given.slice(0, -1), last as SavepointWork]
          : [[], (tx: PostgresJsTransaction) => tx(given[0], ...given.slice(1))]
      const inside = async (inner: PostgresJsTransaction): Promise<unknown> => {
        const result = work(this.handOver(inner))
        return Array.isArray(result) ? Promise.all(result) : result
      }
      const begun = tx.savepoint(...name, (inner: PostgresJsTransaction) => this.whileItHolds(inside(inner), reject))
      begun.then(resolve, reject)
    })
  }

  /** Looks at the last moment, when the statement would be sent. What is no statement is left as it is. */
  #gated<Given>(given: Given, refusal: (statement: PostgresJsStatement) => Error | undefined): Given {
    if (typeof given !== 'object' || given === null || !('handler' in given)) return given
    const statement = given as unknown as PostgresJsStatement
    const send = statement.handler
    const gate = (sent: PostgresJsStatement): void => {
      const error = refusal(sent)
      if (error === undefined) return void send(sent)
      // As with every failure of this driver, the process does not crash when nobody waits for the answer.
      sent.catch(() => undefined)
      sent.reject(error)
    }
    statement.handler = Object.assign(gate, { debug: send.debug })
    return given
  }

  #refusal(): Error | undefined {
    return this.#isClosed ? isOver() : this.#broken()
  }

  #broken(): Error | undefined {
    if (this.#isLost || this.#backend?.pid !== this.#pid) return isOver()
    return this.#connection?.reserved === this.#reserved ? undefined : endedByWork()
  }

  /** With the first statement. */
  #meet(connection: PostgresJsConnection): true {
    if (this.#connection !== undefined) return true
    this.#connection = connection
    this.#reserved = connection.reserved
    const { onclose } = connection
    const lost = (error: unknown): void => {
      this.#isLost = true
      onclose?.(error)
    }
    Object.assign(connection, { onclose: lost })
    return true
  }
}

type SavepointWork = (tx: PostgresJsTransaction) => unknown

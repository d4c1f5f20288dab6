import { processNonce } from '../../../random.ts'

/**
 * Returns the name of a savepoint that marks a transaction. The work cannot guess it; otherwise it could undo the fence, or the
 * lock, by rolling back to it. The name is the same for all transactions, since servers keep statistics by the text of a
 * statement. `within` is for a transaction that may already be marked; on MariaDB a second mark of the same name would replace
 * the first.
 */
export function markName(purpose: 'transaction' | 'within'): string {
  return `ringfence_${processNonce()}_${purpose}`
}

/** The isolation level of a transaction of the guard. */
export type Isolation = 'read committed' | 'repeatable read' | 'serializable'

/**
 * A PGlite, or other software behind its two methods: `transaction` commits when the work resolves and rolls back when
 * it rejects; both kinds of `query` resolve to the rows or to `{ rows }`.
 */
export interface TransactionalLike<Transaction> {
  query(text: string, params?: unknown[]): Promise<unknown>
  transaction(work: (transaction: Transaction) => Promise<unknown>): Promise<unknown>
}

/** The work resolved, but its transaction is not what it was: it was rolled back, or the work itself has ended it. */
export class EndedTransactionError extends Error {
  /** False when trying again cannot help. */
  readonly transient: boolean

  constructor(message: string, options: { cause?: unknown; transient: boolean }) {
    super(message, { cause: options.cause })
    this.name = 'EndedTransactionError'
    this.transient = options.transient
  }
}

/** A statement failed, the work went on after it, and the server has rolled everything back. */
export function passedOver(cause: unknown): EndedTransactionError {
  const message =
    'nothing was committed, because a statement of the transaction had failed and the work went on after it'
  return new EndedTransactionError(message, { cause, transient: true })
}

/** From that moment on the work had neither the lock of the transaction nor its atomicity. */
export function endedByWork(cause?: unknown): EndedTransactionError {
  const message =
    'the work has ended the transaction that it was given: by a commit or rollback of its own, by a statement that commits on its way, or by ' +
    'going on after a deadlock; what it wrote after that was not protected. Leave both to the call that runs the work'
  return new EndedTransactionError(message, { cause, transient: false })
}

/** The error of a statement that comes too late: it was not sent, because nothing would protect it. */
export function isOver(): EndedTransactionError {
  const message =
    'the statement was not sent, because its transaction is over: the connection was lost, or the work has settled already. ' +
    'Await every statement within the work, and run the work again in a new transaction'
  return new EndedTransactionError(message, { transient: true })
}

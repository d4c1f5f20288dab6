import { EndedTransactionError } from '../engines/shared/sql/transaction.ts'
import { GuardError } from '../errors.ts'
import type { Fenced, GuardContext } from './guard.ts'

export interface TransactionSteps<Transaction, T> {
  /** Before the transaction. */
  prepare?(): Promise<void>
  /** Opens a transaction and runs `inside` in it. Commits when that resolves, and otherwise rolls back. */
  open(inside: (transaction: Transaction) => Promise<T>): Promise<T>
  /** Checks the fences, raises them, and keeps them locked until the transaction ends. */
  raise(transaction: Transaction): Promise<void>
  work(transaction: Transaction): T | Promise<T>
  /** Returns whether another transaction may raise the fences after this error, and does what that needs. */
  mayTryAgain(error: unknown): Promise<boolean>
  /** What the caller gets of an error before the work. Default: a `GuardError`. */
  failure?(error: unknown): unknown
}

/**
 * Raises the fences, again if they conflict with another transaction; then runs the work once. The work has no time limit: the
 * request timeout applies to everything before it, and again to everything after it.
 */
export function fencedTransaction<Transaction, T>(
  context: GuardContext,
  { resources }: Fenced,
  steps: TransactionSteps<Transaction, T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let entered = false
    let over = false
    let giveUp: (error: GuardError) => void
    const givenUp = new Promise<never>((_resolve, reject) => (giveUp = reject))
    givenUp.catch(reject)
    let deadline = context.deadline(resources, (error) => {
      over = true
      giveUp(error)
    })

    const inside = async (transaction: Transaction): Promise<T> => {
      // The connection came too late: the caller already has the error that nothing was done.
      if (over) return givenUp
      await Promise.race([steps.raise(transaction), givenUp])
      entered = true
      deadline.cancel()
      try {
        const result = await steps.work(transaction)
        deadline = context.deadline(resources, reject)
        return result
      } catch (error) {
        // The caller gets the error even if the store never answers to the rollback.
        deadline = context.deadline(resources, () => reject(error))
        throw error
      }
    }

    const attempts = async (): Promise<T> => {
      for (;;) {
        try {
          await steps.prepare?.()
          return await steps.open(inside)
        } catch (caught) {
          const error = caught instanceof EndedTransactionError ? ended(caught, resources) : caught
          if (entered || over) throw error
          const failure = (cause: unknown): unknown => steps.failure?.(cause) ?? context.failure(resources, cause)
          const again = await steps.mayTryAgain(error).catch((cause: unknown) => {
            throw failure(cause)
          })
          if (!again) throw failure(error)
        }
      }
    }
    attempts()
      .finally(() => deadline.cancel())
      .then(resolve, reject)
  })
}

function ended(cause: EndedTransactionError, resources: readonly string[]): GuardError {
  return new GuardError(cause.message, resources, { cause, transient: cause.transient })
}

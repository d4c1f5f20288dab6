import type { GuardError } from '../errors.ts'
import type { Fenced, Post } from './guard.ts'

export interface TransactionSteps<Transaction, T> {
  /** Before the transaction. */
  prepare?(): Promise<void>
  /** Opens a transaction, runs what is inside, and commits it, or rolls it back when that rejects. */
  open(inside: (transaction: Transaction) => Promise<T>): Promise<T>
  /** Checks the fences, raises them, and keeps them until the transaction ends. */
  raise(transaction: Transaction): Promise<void>
  work(transaction: Transaction): T | Promise<T>
  /** Whether the fences may be raised by another transaction after this error, and what has to be done before. */
  mayTryAgain(error: unknown): Promise<boolean>
}

/**
 * The fences first, and again if they are in conflict with another transaction; then the work, once. The work takes as long
 * as it takes: the time-out is for what comes before it, and again for what comes after.
 */
export function fencedTransaction<Transaction, T>(
  post: Post,
  { resources }: Fenced,
  steps: TransactionSteps<Transaction, T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let entered = false
    let over = false
    let giveUp: (error: GuardError) => void
    const givenUp = new Promise<never>((_resolve, reject) => (giveUp = reject))
    givenUp.catch(reject)
    let deadline = post.deadline(resources, (error) => {
      over = true
      giveUp(error)
    })

    const inside = async (transaction: Transaction): Promise<T> => {
      // The connection came too late: the caller has been told that nothing was done.
      if (over) return givenUp
      await Promise.race([steps.raise(transaction), givenUp])
      entered = true
      deadline.cancel()
      try {
        const result = await steps.work(transaction)
        deadline = post.deadline(resources, reject)
        return result
      } catch (error) {
        // The caller hears of it even if the store never answers to the rollback.
        deadline = post.deadline(resources, () => reject(error))
        throw error
      }
    }

    const attempts = async (): Promise<T> => {
      for (;;) {
        try {
          await steps.prepare?.()
          return await steps.open(inside)
        } catch (error) {
          if (entered || over || !(await steps.mayTryAgain(error))) throw error
        }
      }
    }
    attempts()
      .finally(() => deadline.cancel())
      .then(resolve, reject)
  })
}

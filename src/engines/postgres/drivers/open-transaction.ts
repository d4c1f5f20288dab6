import type { SqlQuery } from '../../shared/sql/client.ts'
import { endedByWork, markName, passedOver } from '../../shared/sql/transaction.ts'
import { sqlState } from '../errors.ts'

export const MARK = {
  set: `SAVEPOINT ${markName('transaction')}`,
  /** Fails unless the transaction of the mark is still open and none of its statements has failed. */
  prove: `RELEASE SAVEPOINT ${markName('transaction')}`,
}

/** For drivers that begin and commit by themselves: rejects before the driver commits if there is nothing to commit. */
export async function proved<T>(query: SqlQuery, work: () => Promise<T>): Promise<T> {
  await query(MARK.set, [])
  const result = await work()
  await query(MARK.prove, []).catch(throwUnproved)
  return result
}

export function throwUnproved(error: unknown): never {
  const state = sqlState(error)
  if (state === '25P02') throw passedOver(error)
  // No such savepoint; no transaction at all.
  if (state === '3B001' || state === '25P01') throw endedByWork(error)
  throw error
}

const SPACE = String.raw`(?:[\s;]|--[^\n]*(?:\n|$)|/\*[\s\S]*?\*/)*`
const ENDING = new RegExp(
  `^${SPACE}(?:commit|end|abort|prepare${SPACE}transaction|rollback(?!${SPACE}(?:work|transaction)?${SPACE}to\\b))\\b`,
  'i',
)
const METHODS = ['query', 'exec', 'sql']

/** Whether a statement would end the transaction. `proved` finds one in the middle of a text, after it has happened. */
export function isEnding(statement: unknown): boolean {
  // A text, or the first piece of a template.
  const text: unknown = Array.isArray(statement) ? statement[0] : statement
  return typeof text === 'string' && ENDING.test(text)
}

/**
 * The driver's own transaction, which refuses to send what would end it: nothing could stop the rest of the work from
 * writing without protection.
 */
export function withoutEnding<Transaction extends object>(transaction: Transaction): Transaction {
  return new Proxy(transaction, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name)
      if (typeof value !== 'function' || typeof name !== 'string' || !METHODS.includes(name)) return value
      return (...given: unknown[]): unknown => {
        if (isEnding(given[0])) throw endedByWork()
        return Reflect.apply(value as () => unknown, target, given)
      }
    },
  })
}

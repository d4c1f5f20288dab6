import { GuardError } from '../../../errors.ts'
import { hasMethods } from '../../shared/shape.ts'
import type { SqlQuery } from '../../shared/sql/client.ts'
import { endedByWork, type Isolation } from '../../shared/sql/transaction.ts'
import { MARK, throwUnproved } from './open-transaction.ts'
import { queryOf, type QueryClient } from './query.ts'

/** What a transaction uses of a client of pg. */
export interface PgTransactionClient extends QueryClient {
  on(event: string, listener: (message: never) => void): unknown
  off(event: string, listener: (message: never) => void): unknown
  /** Only a client of a pool, which may be the user's own. */
  release?(destroy?: boolean | Error): void
  /** Not with libpq (pg-native). */
  readonly connection?: {
    readonly stream?: { destroy(): void }
    prependListener(event: 'readyForQuery', listener: OnReady): void
    off(event: 'readyForQuery', listener: OnReady): void
  }
}

type OnReady = (message: { readonly status?: string }) => void

export interface PgTransactionTerms {
  readonly isolation: Isolation | undefined
  /** Whether we took the client from its pool and must give it back. Otherwise it is the user's, who goes on using it. */
  readonly owned: boolean
}

/** One round trip to begin and one to commit: an error in the middle of such a text ends it there. */
export async function inTransaction<T>(
  client: PgTransactionClient,
  work: (tx: unknown, query: SqlQuery) => Promise<T>,
  { isolation, owned }: PgTransactionTerms,
): Promise<T> {
  // While it is taken from the pool, nobody else listens, and an error event without a listener ends the process.
  client.on('error', ignore)
  let isClean = false
  let watch: EndWatch | undefined
  try {
    await client.query(`BEGIN${isolation === undefined ? '' : ` ISOLATION LEVEL ${isolation}`}; ${MARK.set}`)
    watch = watchEnd(client, owned)
    const result = await work(client, queryOf(client)).catch(async (error: unknown) => {
      if (watch!.isOver) throw endedByWork(error)
      watch!.close()
      // Statements that have had no answer yet would delay the rollback. Ending our connection rolls back too.
      if (!owned || !(error instanceof GuardError)) isClean = await isRolledBack(client)
      throw error
    })
    if (watch.isOver) throw endedByWork()
    await proveAndCommit(client, watch).catch(async (error: unknown) => {
      if (watch!.isOver) throw endedByWork(error)
      // The rollback is ours: it must not be taken for an end by the work, which closes the connection.
      watch!.close()
      isClean = await isRolledBack(client)
      throwUnproved(error)
    })
    isClean = true
    return result
  } finally {
    watch?.close()
    client.off('error', ignore)
    if (owned) client.release?.(!isClean)
  }
}

const ignore = (): void => undefined

async function proveAndCommit(client: PgTransactionClient, watch: EndWatch): Promise<void> {
  // Statements that the work did not await are answered first, and one of them may end the transaction.
  const isIdle = Reflect.get(client, 'readyForQuery') === true
  if (!isIdle) await client.query(MARK.prove)
  watch.close()
  await client.query(isIdle ? `${MARK.prove}; COMMIT` : 'COMMIT')
}

async function isRolledBack(client: PgTransactionClient): Promise<boolean> {
  try {
    await client.query('ROLLBACK')
    return true
  } catch {
    // The connection is broken, so the server rolls back by itself; the error that led here is the one to report.
    return false
  }
}

interface EndWatch {
  readonly isOver: boolean
  close(): void
}

/**
 * The server says with every answer whether a transaction is open. Once the work has ended ours, its connection is closed,
 * before it can send what would be written without protection. A client that is the user's own is left open.
 */
function watchEnd(client: PgTransactionClient, owned: boolean): EndWatch {
  const { connection } = client
  let isOver = false
  const onReady: OnReady = ({ status }) => {
    if (status !== 'I') return
    isOver = true
    connection!.stream?.destroy()
  }
  const isWatched = owned && hasMethods(connection, 'prependListener', 'off')
  if (isWatched) connection.prependListener('readyForQuery', onReady)
  return {
    get isOver() {
      return isOver
    },
    close() {
      if (isWatched) connection.off('readyForQuery', onReady)
    },
  }
}

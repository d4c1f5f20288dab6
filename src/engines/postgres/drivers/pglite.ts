import { hasMethods } from '../../shared/shape.ts'
import type { RunTransaction } from '../../shared/sql/client.ts'
import { endedByWork } from '../../shared/sql/transaction.ts'
import type { PostgresClient } from '../client.ts'
import { proved, withoutEnding } from './open-transaction.ts'
import { queryOf, type QueryClient } from './query.ts'

interface Transactional extends QueryClient {
  transaction<T>(work: (tx: QueryClient) => Promise<T>): Promise<T>
}

interface Pglite extends Transactional {
  readonly closed?: boolean
  listen(channel: string, notified: (payload: string) => void): Promise<() => Promise<void>>
}

export function isPglite(value: unknown): value is Pglite {
  return hasMethods(value, 'query', 'exec', 'listen', 'transaction')
}

/** PostgreSQL within this process: one connection, on which statements wait for one another. */
export function pglite(db: Pglite): PostgresClient {
  return {
    driver: 'pglite',
    unusable: () => (db.closed === true ? 'the database was closed' : undefined),
    query: queryOf(db),
    async listen(channel, listener) {
      const unlisten = await db.listen(channel, listener.notified)
      return { close: unlisten }
    },
    transaction: transactionOf(db, withoutEnding),
  }
}

export function isTransactional(value: unknown): value is Transactional {
  return hasMethods(value, 'query', 'transaction')
}

/** Other software, behind two methods that are used as those of PGlite. */
export function transactional(client: Transactional): PostgresClient {
  return {
    driver: 'own',
    unusable: () => undefined,
    query: queryOf(client),
    transaction: transactionOf(client, (tx) => tx),
  }
}

function transactionOf(client: Transactional, handedOver: (tx: QueryClient) => QueryClient): RunTransaction {
  return (work, isolation) =>
    client.transaction(async (tx) => {
      const query = queryOf(tx)
      // Not after the savepoint: the server does not let a part of a transaction have another level.
      if (isolation !== undefined) await query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`, [])
      return proved(query, async () => {
        const result = await work(handedOver(tx), query)
        // By PGlite's own rollback(), after which it answers to nothing.
        if (Reflect.get(tx, 'closed') === true) throw endedByWork()
        return result
      })
    })
}

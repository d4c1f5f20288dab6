import { hasMethods } from '../../shared/shape.ts'
import { rowsOf } from '../../shared/sql/client.ts'
import type { ListenConnection, NotificationListener, PostgresClient, PostgresConnection } from '../client.ts'
import { PoolerError } from '../errors.ts'
import { inTransaction, type PgTransactionClient } from './pg-transaction.ts'
import { queryOf, type QueryClient } from './query.ts'

interface PgClient extends PgTransactionClient {
  readonly processID?: number | null
  connect(): Promise<unknown>
  end(): Promise<void>
  unref?(): void
}

interface PgPool extends QueryClient {
  readonly Client?: new (options: unknown) => PgClient
  readonly options: object
  readonly ending?: boolean
  connect(): Promise<PgClient & { release(destroy?: boolean | Error): void }>
}

interface PgNotification {
  readonly channel: string
  readonly payload?: string
}

export function isPgPool(value: unknown): value is PgPool {
  return hasMethods(value, 'connect', 'query') && 'totalCount' in value && typeof value.totalCount === 'number'
}

export function isPgClient(value: unknown): value is PgClient {
  return hasMethods(value, 'connect', 'query', 'end', 'escapeIdentifier', 'on')
}

export function pgPool(pool: PgPool): PostgresClient {
  return {
    driver: 'pg',
    unusable: () => (pool.ending === true ? 'the pool was ended' : undefined),
    query: queryOf(pool),
    ...(pool.Client === undefined ? {} : { listen: listenBeside(pool.Client, pool.options) }),
    transaction: async (work, isolation) => {
      const client = await pool.connect()
      return inTransaction(client, work, { isolation, owned: true })
    },
  }
}

/** Not one of the pool's connections: it would be missing there, and a pool of one would have none left. */
function listenBeside(Client: new (options: unknown) => PgClient, options: unknown): PostgresClient['listen'] & {} {
  return async (channel, listener) => {
    const client = new Client(options)
    const end = async (): Promise<void> => client.end().catch(() => undefined)
    try {
      // Before it is connected: a failure without a listener would end the process.
      client.on('error', ignore)
      await client.connect()
      // Waiting processes have timers of their own; a connection that only listens keeps no process alive.
      client.unref?.()
      const listening = await listenOn(client, channel, listener)
      return { close: () => listening.close().then(end, end) }
    } catch (error) {
      await end()
      throw error
    }
  }
}

/** A connection that is the user's own or, for session-level locks, ours. */
export function pgConnection(client: PgClient): PostgresConnection {
  return {
    driver: 'pg',
    announcedPid: async () => client.processID ?? undefined,
    unusable: () => (Reflect.get(client, '_ending') === true ? 'the client was ended' : undefined),
    query: queryOf(client),
    async listen(channel, listener) {
      const [row] = rowsOf(await client.query('SELECT pg_backend_pid()::text AS pid'))
      // On one connection a pooler may send us back our own notifications, and none of those of others.
      if (typeof client.processID === 'number' && row?.['pid'] !== String(client.processID)) {
        throw new PoolerError('the process that answers is not the one that was announced')
      }
      return listenOn(client, channel, listener)
    },
    transaction: (work, isolation) => inTransaction(client, work, { isolation, owned: false }),
    onEnd(ended) {
      client.on('error', ignore)
      client.on('end', ended)
    },
    async end() {
      if (client.release !== undefined) client.release(true)
      else await client.end()
    },
  }
}

const ignore = (): void => undefined

async function listenOn(client: PgClient, channel: string, listener: NotificationListener): Promise<ListenConnection> {
  const notified = (message: PgNotification): void => {
    if (message.channel === channel) listener.notified(message.payload ?? '')
  }
  const lost = (): void => listener.lost()
  const off = (): void => {
    client.off('notification', notified)
    client.off('end', lost)
  }
  client.on('notification', notified)
  client.on('end', lost)
  try {
    await client.query(`LISTEN "${channel}"`)
  } catch (error) {
    off()
    throw error
  }
  return {
    async close() {
      off()
      await client.query(`UNLISTEN "${channel}"`)
    },
  }
}

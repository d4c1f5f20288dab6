import type { Ears, Line, PostgresClient, PostgresConnection } from '../client.ts'
import { PoolerError } from '../errors.ts'
import { hasMethods, rowsOf } from './shape.ts'

interface Query {
  query(text: string, params?: unknown[]): Promise<unknown>
}

interface PgClient extends Query {
  readonly processID?: number | null
  connect(): Promise<unknown>
  end(): Promise<void>
  on(event: string, listener: (message: never) => void): unknown
  off(event: string, listener: (message: never) => void): unknown
  unref?(): void
  /** Only a client that was taken from a pool. */
  release?(destroy?: boolean | Error): void
}

interface PgPool extends Query {
  readonly Client: new (options: unknown) => PgClient
  readonly options: object
  readonly ending?: boolean
  connect(): Promise<PgClient & { release(destroy?: boolean | Error): void }>
}

interface Notification {
  readonly channel: string
  readonly payload?: string
}

export function isPgPool(value: unknown): value is PgPool {
  return hasMethods(value, 'connect', 'query', 'end', 'Client') && 'totalCount' in value && 'options' in value
}

export function isPgClient(value: unknown): value is PgClient {
  return hasMethods(value, 'connect', 'query', 'end', 'escapeIdentifier', 'on')
}

export function pgPool(pool: PgPool): PostgresClient {
  return {
    driver: 'pg',
    unusable: () => (pool.ending === true ? 'the pool was ended' : undefined),
    query: queryOf(pool),
    // Not one of the pool's connections: it would be missing there, and a pool of one would have none left.
    async listen(channel, ears) {
      const client = new pool.Client(pool.options)
      const end = async (): Promise<void> => client.end().catch(() => undefined)
      try {
        // Before it is connected: a failure without a listener would end the process.
        client.on('error', () => undefined)
        await client.connect()
        // Whoever waits has a timer; an idle ear keeps no process alive.
        client.unref?.()
        const line = await listenOn(client, channel, ears)
        return { close: () => line.close().then(end, end) }
      } catch (error) {
        await end()
        throw error
      }
    },
    async transaction(work) {
      const client = await pool.connect()
      return inTransaction(client, work)
    },
  }
}

/** A connection that is the user's own or, for session-level locks, ours. */
export function pgConnection(client: PgClient): PostgresConnection {
  return {
    driver: 'pg',
    toldPid: async () => client.processID ?? undefined,
    unusable: () => (Reflect.get(client, '_ending') === true ? 'the client was ended' : undefined),
    query: queryOf(client),
    async listen(channel, ears) {
      const [row] = rowsOf(await client.query('SELECT pg_backend_pid()::text AS pid'))
      // On one connection a pooler may well send us back what we tell ourselves, and nothing that others tell.
      if (typeof client.processID === 'number' && row?.['pid'] !== String(client.processID)) {
        throw new PoolerError('the server is not who greeted us')
      }
      return listenOn(client, channel, ears)
    },
    transaction: (work) => inTransaction(client, work),
    onEnd(ended) {
      client.on('error', () => undefined)
      client.on('end', ended)
    },
    async end() {
      if (client.release !== undefined) client.release(true)
      else await client.end()
    },
  }
}

function queryOf(client: Query): PostgresClient['query'] {
  return async (text, params) => rowsOf(await client.query(text, [...params]))
}

async function listenOn(client: PgClient, channel: string, ears: Ears): Promise<Line> {
  const heard = (message: Notification): void => {
    if (message.channel === channel) ears.heard(message.payload ?? '')
  }
  const lost = (): void => ears.lost()
  const off = (): void => {
    client.off('notification', heard)
    client.off('end', lost)
  }
  client.on('notification', heard)
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

async function inTransaction<T>(
  client: PgClient,
  work: (tx: unknown, query: PostgresClient['query']) => Promise<T>,
): Promise<T> {
  let broken: Error | undefined
  // While it is taken from the pool, nobody else listens, and an error that nobody listens to ends the process.
  const onError = (error: Error): void => void (broken = error)
  client.on('error', onError)
  try {
    await client.query('BEGIN')
    const result = await work(client, queryOf(client))
    await client.query('COMMIT')
    return result
  } catch (error) {
    await client.query('ROLLBACK').catch((cause: Error) => (broken ??= cause))
    throw error
  } finally {
    client.off('error', onError)
    client.release?.(broken)
  }
}

import type { RunTransaction, SqlQuery } from '../shared/sql/client.ts'

/** What the engine needs of a PostgreSQL connection or pool of any driver: in essence, "run this statement". */
export interface PostgresClient {
  readonly driver: 'pg' | 'postgres.js' | 'pglite' | 'own'
  /** Why this client cannot be used (it is closed), or undefined while it can. */
  unusable(): string | undefined
  /** The `code` of an error is the SQLSTATE. */
  readonly query: SqlQuery
  /** Listens on a channel, over a connection of its own where the driver can open one. */
  readonly listen?: (channel: string, listener: NotificationListener) => Promise<ListenConnection>
  readonly transaction?: RunTransaction
}

/** One connection that is ours alone, for session-level locks. */
export interface PostgresConnection extends PostgresClient {
  /** The process id that the server announced when we connected; a pooler announces a number of its own. */
  announcedPid(): Promise<number | undefined>
  /** Calls back once, when the connection has ended; undefined where the driver does not say so. */
  onEnd?(ended: () => void): void
  end(): Promise<void>
}

export interface NotificationListener {
  readonly notified: (payload: string) => void
  /** The connection is lost: notifications from now on do not arrive. */
  readonly lost: () => void
  /** The connection was lost and is back. */
  readonly back: () => void
}

export interface ListenConnection {
  close(): Promise<void>
}

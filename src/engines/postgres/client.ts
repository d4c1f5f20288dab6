/** A row as the statements here ask for it: every column is text. */
export type Row = Readonly<Record<string, string | null>>

/** What the engine needs of a PostgreSQL connection or pool, whatever the driver: in essence, "run this statement". */
export interface PostgresClient {
  readonly driver: 'pg' | 'postgres.js' | 'pglite' | 'own'
  /** Why this client can't be used (it is closed), or undefined while it can. */
  unusable(): string | undefined
  /** One statement. Its parameters are text or null. Rejects with the driver's error, whose `code` is the SQLSTATE. */
  readonly query: (text: string, params: readonly (string | null)[]) => Promise<readonly Row[]>
  /** Hears what is told on a channel, over a connection of its own where the driver can open one. */
  readonly listen?: (channel: string, ears: Ears) => Promise<Line>
  /** Runs the function within a transaction, handing it what the driver gives for that. */
  readonly transaction?: <T>(work: (tx: unknown, query: PostgresClient['query']) => Promise<T>) => Promise<T>
}

/** One connection that is ours alone, for session-level locks. */
export interface PostgresConnection extends PostgresClient {
  /** The process that serves us, as the connection itself was told; a pooler tells a number of its own. */
  toldPid(): Promise<number | undefined>
  /** Calls back once, when the connection has ended; undefined where the driver does not tell. */
  onEnd?(ended: () => void): void
  end(): Promise<void>
}

export interface Ears {
  readonly heard: (payload: string) => void
  /** The line is lost: what is told from now on goes unheard. */
  readonly lost: () => void
  /** It was lost and is back. */
  readonly back: () => void
}

export interface Line {
  close(): Promise<void>
}

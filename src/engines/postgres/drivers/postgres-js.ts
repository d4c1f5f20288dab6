import type { Line, PostgresClient, PostgresConnection } from '../client.ts'
import { hasMethods, rowsOf } from './shape.ts'

interface Unsafe {
  /** Runs when it is awaited, and is not prepared under a name. */
  unsafe(text: string, params?: unknown[]): PromiseLike<unknown>
}

interface PostgresJs extends Unsafe {
  begin<T>(work: (tx: Unsafe) => Promise<T>): Promise<T>
  listen(
    channel: string,
    heard: (payload: string) => void,
    onListen: () => void,
  ): Promise<{ unlisten(): Promise<unknown> }>
}

interface ReservedPostgresJs extends Unsafe {
  release(): void
}

export function isPostgresJs(value: unknown): value is PostgresJs {
  return typeof value === 'function' && hasMethods(value, 'unsafe', 'begin', 'listen')
}

export function isReservedPostgresJs(value: unknown): value is ReservedPostgresJs {
  return typeof value === 'function' && hasMethods(value, 'unsafe', 'release')
}

export function postgresJs(sql: PostgresJs): PostgresClient {
  /**
   * postgres.js listens again by itself after every failure, also the first one, and never lets go of a listener whose
   * first try failed. So there is one for as long as the engine lives, and whether it hears is found out by speaking.
   */
  let line: Promise<Line> | undefined
  return {
    driver: 'postgres.js',
    unusable: () => undefined,
    query: queryOf(sql),
    listen(channel, ears) {
      let isFirst = true
      line ??= sql
        .listen(channel, ears.heard, () => {
          if (!isFirst) ears.back()
          isFirst = false
        })
        .then(
          (listening) => ({ close: async () => void (await listening.unlisten()) }),
          () => ({ close: async () => undefined }),
        )
      return line
    },
    transaction: (work) => sql.begin((tx) => work(tx, queryOf(tx))),
  }
}

export function reservedPostgresJs(sql: ReservedPostgresJs): PostgresConnection {
  return {
    driver: 'postgres.js',
    async toldPid() {
      const { state } = (await sql.unsafe('SELECT 1')) as { state?: { pid?: number } }
      return state?.pid
    },
    unusable: () => undefined,
    query: queryOf(sql),
    end: async () => sql.release(),
  }
}

function queryOf(sql: Unsafe): PostgresClient['query'] {
  return async (text, params) => rowsOf(await sql.unsafe(text, [...params]))
}

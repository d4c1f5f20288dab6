import { createHash } from 'node:crypto'
import { optionsOrThrow } from '../../arguments.ts'
import { clockOrThrow } from '../../clock.ts'
import { shown } from '../../duration.ts'
import type { Engine, Guarantees } from '../../engine.ts'
import { randomOrThrow } from '../../random.ts'
import { LeaseEngine } from '../shared/sql/lease-engine.ts'
import { booleanOrThrow, TABLE_OPTIONS, tableSettings, type TableOptions } from '../shared/sql/settings.ts'
import { tableParts } from '../shared/sql/table-name.ts'
import type { PostgresClient } from './client.ts'
import { checkPostgres } from './doctor.ts'
import { recogniseOrThrow, type PostgresConnectionLike, type PostgresLike } from './drivers/recognise.ts'
import { AdvisorySession } from './session.ts'
import { PostgresSteps, type LeaseConnection } from './steps.ts'
import { PostgresWakeups } from './wakeups.ts'

export type {
  PgPoolLike,
  PostgresConnectionLike,
  PostgresJsLike,
  PostgresLike,
  PostgresTransactional,
} from './drivers/recognise.ts'
export type { TransactionalLike } from '../shared/sql/transaction.ts'
export { postgresSchema } from './statements.ts'
export { advisoryKey, withAdvisoryLock, type AdvisoryLockOptions, type PgClientLike } from './advisory-lock.ts'

/** Options of `postgres`. */
export interface PostgresOptions extends TableOptions {
  /**
   * Wake waiters by LISTEN and NOTIFY, over a connection of its own. Default true; where that does not work (a transaction
   * pooler), waiters poll. With false this process neither listens nor notifies: set the same in all processes.
   */
  listen?: boolean
}

/** Leases in a table of PostgreSQL, by the server's clock. */
export function postgres(client: PostgresLike, options: PostgresOptions = {}): Engine {
  optionsOrThrow(options, OPTIONS)
  const given = recogniseOrThrow(client)
  const { query } = given
  const connection: LeaseConnection = { query, session: null }
  return engine(options, {
    name: 'postgres',
    guarantees: TABLE_GUARANTEES,
    query,
    connection: async () => connection,
    listen: given.listen,
    session: undefined,
  })
}

/**
 * Leases in the same table that end with a connection as well, not only by time: when this process dies, the next one gets
 * in at once. `connect` opens that connection, again after a loss; it is ours and is closed by `close`. Refused behind a
 * pooler that lends out connections for single transactions.
 */
export function postgresAdvisory(
  connect: () => Promise<PostgresConnectionLike>,
  options: PostgresOptions = {},
): Engine {
  if (typeof connect !== 'function') {
    throw new TypeError(
      `connect: expected a function that resolves with a connection of its own, got ${shown(connect)}`,
    )
  }
  optionsOrThrow(options, OPTIONS)
  const session = new AdvisorySession(connect, clockOrThrow(options.clock), randomOrThrow(options.random))
  const made = engine(options, {
    name: 'postgres-advisory',
    guarantees: SESSION_GUARANTEES,
    query: session.query,
    connection: session.connection,
    listen: (channel, listener) => session.listen(channel, listener),
    session,
  })
  return Object.assign(made, { onDoubt: (prove: () => void) => session.onEnd(prove) })
}

const OPTIONS = [...TABLE_OPTIONS, 'listen']

interface PostgresKind {
  readonly name: string
  readonly guarantees: Guarantees
  readonly query: PostgresClient['query']
  readonly connection: () => Promise<LeaseConnection>
  readonly listen: PostgresClient['listen'] | undefined
  readonly session: AdvisorySession | undefined
}

/** The class is `LeaseEngine`, which MariaDB has in common with PostgreSQL; its steps are ours. */
function engine(options: PostgresOptions, kind: PostgresKind): Engine {
  const { table, createTable, timeoutMs, limits } = tableSettings(options)
  const clock = clockOrThrow(options.clock)
  const random = randomOrThrow(options.random)
  const { listen: listenOption = true } = options
  const listen = booleanOrThrow(listenOption, 'listen')
  const channel = channelOf(tableParts(table))
  const senderId = `${random.id().slice(0, 12)} `
  const { query } = kind
  const wakeups =
    listen && kind.listen !== undefined
      ? new PostgresWakeups({
          clock,
          random,
          senderId,
          open: (listener) => kind.listen!(channel, listener),
          notify: (payload) => query('SELECT true::text FROM pg_notify($1::text, $2::text)', [channel, payload]),
        })
      : undefined
  return new LeaseEngine({
    name: kind.name,
    // The same for both kinds: they share the rows and their counters.
    identity: `postgres:${table}`,
    guarantees: kind.guarantees,
    limits,
    clock,
    random,
    steps: new PostgresSteps({
      table,
      connection: kind.connection,
      bound: kind.session !== undefined,
      channel: listen ? channel : '',
      senderId,
    }),
    createTable,
    timeoutMs,
    ...(wakeups === undefined ? {} : { wakeups }),
    check: (ttlMs) =>
      checkPostgres({
        query,
        clock,
        ttlMs,
        driftMs: limits.driftMs(ttlMs),
        table,
        createTable,
        wakeups,
        listen,
        isSession: kind.session !== undefined,
      }),
    async end() {
      await wakeups?.close()
      await kind.session?.close()
    },
  })
}

/** Drivers change the case of other names, or shorten them, each in its own way. */
function channelOf(parts: readonly string[]): string {
  const plain = parts.join('_')
  if (parts.length === 1 && /^[a-z0-9_]{1,63}$/.test(plain)) return plain
  return `ringfence_${createHash('sha256').update(parts.join('.')).digest('hex').slice(0, 32)}`
}

const TABLE_GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the server',
  token: 'a counter in the row of the resource, raised with the grant in one step and never below the server’s clock',
  survives: { serverRestart: 'yes', lossOfServers: 0, failover: 'not promised' },
  order: 'first come, first served in one process',
  shared: true,
}

const SESSION_GUARANTEES: Guarantees = {
  ...TABLE_GUARANTEES,
  // Its connection ends with the server, and the fastest process after the restart gets the lease.
  survives: { serverRestart: 'no', lossOfServers: 0, failover: 'no' },
}

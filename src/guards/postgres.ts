import {
  queryWithin,
  recogniseTransactional,
  type PostgresTransactional,
} from '../engines/postgres/drivers/recognise.ts'
import { failureKind, sqlState } from '../engines/postgres/errors.ts'
import type { SqlQuery } from '../engines/shared/sql/client.ts'
import { GuardError } from '../errors.ts'
import type { Fenced } from './guard.ts'
import { POSTGRES_EFFECTS, POSTGRES_RUNS } from './postgres-records.ts'
import { refusedOf, type RefusedResource } from './rows.ts'
import { SqlStoreGuard, type Dialect, type SqlGuard, type SqlGuardOptions } from './sql.ts'

/**
 * A guard for PostgreSQL. Takes a `Pool` of pg, the `sql` of postgres.js, a PGlite, or `{ query, transaction }` around
 * other software.
 */
export function postgresGuard<Transaction>(
  client: PostgresTransactional<Transaction>,
  options: SqlGuardOptions = {},
): SqlGuard<Transaction> {
  return new SqlStoreGuard(POSTGRES, recogniseTransactional(client), options)
}

const POSTGRES: Dialect = {
  name: 'postgres',
  schema: (table) =>
    `CREATE TABLE IF NOT EXISTS ${table} (resource text PRIMARY KEY, engine text NOT NULL, token bigint NOT NULL)`,
  quote: (name) => `"${name}"`,
  placeholder: (n) => `$${n}`,
  tokenOf: (placeholder) => `${placeholder}::bigint`,
  textOf: (column) => `${column}::text`,
  // Equal in text is equal byte by byte, except under a collation that was made to be otherwise.
  isSame: (column, placeholder) => `${column} = ${placeholder}::text COLLATE "C"`,
  queryWithin,
  raise,
  raiseWithin,
  effects: POSTGRES_EFFECTS,
  runs: POSTGRES_RUNS,
  isUnknown: (error) => failureKind(error) === 'unknown',
  // 40001: another transaction changed the row after our snapshot. 40P01: a deadlock, which ended us and not the other.
  isConflict: (error) => ['40001', '40P01'].includes(sqlState(error) ?? ''),
  isMissingTable: (error) => sqlState(error) === '42P01',
  isAnswer: (error) => sqlState(error) !== undefined,
  // IF NOT EXISTS does not see a table that is being created: the loser fails at the catalogue's own unique indexes.
  isCreated: (error) => ['42P07', '42710', '23505'].includes(sqlState(error) ?? ''),
}

/**
 * One statement: a row that is there is locked before its condition is checked, after the transaction that has it locked has
 * ended, and stays locked until our transaction ends. It is written even where the token is equal, so that under REPEATABLE READ a
 * transaction that began before ours ended fails to enter, instead of reading what was there before us.
 */
async function raise(
  query: SqlQuery,
  table: string,
  lease: Fenced,
  from?: string,
): Promise<readonly RefusedResource[]> {
  const { resources, token, engine } = lease
  const rows = resources.map((_resource, index) => `($${index + 4}, $1, $2::bigint)`)
  const raised = await query(
    `INSERT INTO ${table} AS fence (resource, engine, token) VALUES ${rows.join(', ')}
     ON CONFLICT (resource) DO UPDATE SET engine = excluded.engine, token = excluded.token
     WHERE (fence.engine = excluded.engine AND fence.token <= excluded.token) OR fence.engine = $3
     RETURNING resource`,
    [engine, String(token), from ?? null, ...resources],
  )
  if (raised.length === resources.length) return []
  const seen = await query(
    `SELECT resource, engine, token::text AS token FROM ${table}
     WHERE resource IN (${resources.map((_resource, index) => `$${index + 1}`).join(', ')})`,
    resources,
  )
  const refused = refusedOf(lease, seen, from)
  if (refused.length > 0) return refused
  throw new GuardError(
    'the fence was refused, and then found open: something else writes its table; find out what, and try again',
    resources,
  )
}

async function raiseWithin(query: SqlQuery, table: string, lease: Fenced): Promise<readonly RefusedResource[]> {
  try {
    // Fails outside of a transaction, where the lock of the fence would end at once; takes no snapshot.
    await query(`LOCK TABLE ${table} IN ROW EXCLUSIVE MODE`, [])
  } catch (error) {
    if (sqlState(error) !== '25P01') throw error
    throw new GuardError(
      'within() needs a connection with an open transaction: BEGIN on it first, or use transaction()',
      lease.resources,
      {
        cause: error,
        transient: false,
      },
    )
  }
  return raise(query, table, lease)
}

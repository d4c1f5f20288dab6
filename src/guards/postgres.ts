import { GuardError } from '../errors.ts'
import type { Fenced } from './guard.ts'
import { postgresDatabase, type PostgresClient } from './postgres-clients.ts'
import { property, refusedOf, type Query, type Refused } from './rows.ts'
import { SqlStoreGuard, type Dialect, type SqlGuard, type SqlGuardOptions } from './sql.ts'

/**
 * A guard for PostgreSQL. Takes a `Pool` of pg, the `sql` of postgres.js, a PGlite, or `{ query, transaction }` around
 * other software.
 */
export function postgresGuard<Transaction>(
  client: PostgresClient<Transaction>,
  options: SqlGuardOptions = {},
): SqlGuard<Transaction> {
  return new SqlStoreGuard(POSTGRES, postgresDatabase(client), options)
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
  raise,
  raiseWithin,
  // 40001: another transaction changed the row after our snapshot. 40P01: a deadlock, which ended us and not the other.
  isConflict: (error) => ['40001', '40P01'].includes(codeOf(error)),
  isMissingTable: (error) => codeOf(error) === '42P01',
  // IF NOT EXISTS does not see a table that is being created: the loser fails at the catalogue's own unique indexes.
  isCreated: (error) => ['42P07', '42710', '23505'].includes(codeOf(error)),
}

/**
 * One statement: a row that is there is locked before its condition is looked at, after whoever has it locked has ended,
 * and stays so until our transaction ends. It is written even where the token is equal, so that under REPEATABLE READ a
 * transaction that began before ours ended fails to enter, instead of reading what was there before us.
 */
async function raise(query: Query, table: string, lease: Fenced, from?: string): Promise<readonly Refused[]> {
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
  throw new GuardError('the fence was refused, and then found open: something else writes its table', resources)
}

async function raiseWithin(query: Query, table: string, lease: Fenced): Promise<readonly Refused[]> {
  try {
    // Fails outside of a transaction, where the fence would be let go at once; takes no snapshot.
    await query(`LOCK TABLE ${table} IN ROW EXCLUSIVE MODE`, [])
  } catch (error) {
    if (codeOf(error) !== '25P01') throw error
    throw new GuardError('within() needs a connection with an open transaction', lease.resources, {
      cause: error,
      transient: false,
    })
  }
  return raise(query, table, lease)
}

/** The SQLSTATE of the server's answer; what wraps the drivers' errors keeps them as a cause. */
function codeOf(error: unknown): string {
  const code = property(error, 'code')
  if (typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code)) return code
  const cause = property(error, 'cause')
  return cause === undefined ? '' : codeOf(cause)
}

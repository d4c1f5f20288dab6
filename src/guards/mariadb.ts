import {
  fromHex,
  markTransaction,
  queryWithin,
  recogniseTransactional,
  type MariadbTransactional,
} from '../engines/mariadb/client.ts'
import { errorNumber, failureKind, isAnswer } from '../engines/mariadb/errors.ts'
import type { SqlQuery, SqlRow } from '../engines/shared/sql/client.ts'
import { GuardError } from '../errors.ts'
import type { Fenced } from './guard.ts'
import { MARIADB_EFFECTS, MARIADB_RUNS } from './mariadb-records.ts'
import { refusedOf, type RefusedResource } from './rows.ts'
import { SqlStoreGuard, type Dialect, type SqlGuard, type SqlGuardOptions } from './sql.ts'

/**
 * A guard for MariaDB and MySQL (InnoDB). Takes a pool of mariadb or of mysql2/promise, or `{ query, transaction }` around
 * other software.
 */
export function mariadbGuard<Transaction>(
  client: MariadbTransactional<Transaction>,
  options: SqlGuardOptions = {},
): SqlGuard<Transaction> {
  return new SqlStoreGuard(MARIADB, recogniseTransactional(client), options)
}

const CHANGED_SINCE_READ = 1020

const MARIADB: Dialect = {
  name: 'mariadb',
  // Bytes: text would be compared by a collation, for which 'a', 'A' and 'a ' may be one resource.
  schema: (table) =>
    `CREATE TABLE IF NOT EXISTS ${table} (resource VARBINARY(1024) PRIMARY KEY, engine VARBINARY(1020) NOT NULL, token BIGINT NOT NULL) ENGINE=InnoDB`,
  quote: (name) => `\`${name}\``,
  placeholder: () => '?',
  // Compared with a text, a number may become a double, which loses its last digits above 2^53.
  tokenOf: (placeholder) => `CAST(${placeholder} AS SIGNED)`,
  textOf: (column) => `CAST(${column} AS CHAR)`,
  isSame: (column, placeholder) => `CAST(${column} AS BINARY) = CAST(${placeholder} AS BINARY)`,
  prepare,
  queryWithin,
  raise,
  raiseWithin,
  effects: MARIADB_EFFECTS,
  runs: MARIADB_RUNS,
  isUnknown: (error) => failureKind(error) === 'unknown',
  // A deadlock that ended us and not the other; a wait for a row that took too long; a row changed after our snapshot.
  isConflict: (error) => [1213, 1205, CHANGED_SINCE_READ].includes(errorNumber(error)),
  isMissingTable: (error) => errorNumber(error) === 1146,
  isAnswer,
  isCreated: (error) => errorNumber(error) === 1050,
}

/**
 * Creates the rows that are missing, open to everybody. Not in the transaction: under REPEATABLE READ, the default, a new
 * row's neighbourhood would stay locked as long as the row, and holders of other resources would wait for each other there.
 */
async function prepare(query: SqlQuery, table: string, lease: Fenced): Promise<void> {
  const { resources } = lease
  const places = resources.map(() => '?').join(', ')
  const there = await query(
    `SELECT HEX(resource) AS resource FROM ${table} WHERE resource IN (${places})`,
    bytes(resources),
  )
  const names = new Set(there.map((row) => fromHex(String(row['resource']))))
  const missing = resources.filter((resource) => !names.has(resource))
  if (missing.length === 0) return
  const rows = missing.map(() => `(?, '', 0)`).join(', ')
  await query(`INSERT IGNORE INTO ${table} (resource, engine, token) VALUES ${rows}`, bytes(missing))
}

async function raise(
  query: SqlQuery,
  table: string,
  lease: Fenced,
  from?: string,
): Promise<readonly RefusedResource[]> {
  const rows = await readLocked(query, table, lease)
  const refused = refusedOf(lease, rows.filter(isFence), from)
  if (refused.length === 0) await lift(query, table, lease, rows)
  return refused
}

/**
 * Under REPEATABLE READ plain reads show the data as of the first of them. If that was before another holder raised the
 * fence, what our transaction reads is older than what it will overwrite, and the server reports nothing. The fences show it:
 * the plain read finds other ones than the locking read.
 */
async function raiseWithin(query: SqlQuery, table: string, lease: Fenced): Promise<readonly RefusedResource[]> {
  try {
    return await raiseAsRead(query, table, lease)
  } catch (error) {
    // With innodb_snapshot_isolation, which is on from MariaDB 11.6 on, the server itself refuses what the snapshot lacks.
    if (errorNumber(error) === CHANGED_SINCE_READ) throw readTooEarly(lease, error)
    throw error
  }
}

async function raiseAsRead(query: SqlQuery, table: string, lease: Fenced): Promise<readonly RefusedResource[]> {
  // Locks the rows that are there, and creates those that are not.
  await query(
    `INSERT INTO ${table} (resource, engine, token) VALUES ${lease.resources.map(() => `(?, '', 0)`).join(', ')}
     ON DUPLICATE KEY UPDATE resource = ${table}.resource`,
    bytes(lease.resources),
  )
  const isOpen = await markTransaction(query, 'within')
  const rows = await readLocked(query, table, lease)
  const asRead: SqlRow[] = []
  for (const resource of lease.resources) asRead.push(...(await read(query, table, resource, '')))
  if (!(await isOpen())) {
    throw new GuardError(
      'within() needs a connection with an open transaction: BEGIN on it first, or use transaction()',
      lease.resources,
      { transient: false },
    )
  }
  const refused = refusedOf(lease, rows.filter(isFence))
  if (refused.length > 0) return refused
  if (JSON.stringify(asRead) !== JSON.stringify(rows)) throw readTooEarly(lease)
  await lift(query, table, lease, rows)
  return []
}

function readTooEarly({ resources }: Fenced, cause?: unknown): GuardError {
  return new GuardError(
    'the transaction had read before it entered, and a newer holder has written since: roll back and start again, with within() first',
    resources,
    { cause },
  )
}

/** One row at a time, by its key: so they are locked in the order of the lease, and nothing else is. */
async function readLocked(query: SqlQuery, table: string, { resources }: Fenced): Promise<readonly SqlRow[]> {
  const rows: SqlRow[] = []
  for (const resource of resources) rows.push(...(await read(query, table, resource, ' FOR UPDATE')))
  if (rows.length === resources.length) return rows
  throw new GuardError(
    'a fence was deleted while it was being raised: something else writes its table; find out what, and try again',
    resources,
  )
}

async function read(
  query: SqlQuery,
  table: string,
  resource: string,
  how: '' | ' FOR UPDATE',
): Promise<readonly SqlRow[]> {
  const rows = await query(
    `SELECT HEX(engine) AS engine, CAST(token AS CHAR) AS token FROM ${table} WHERE resource = ?${how}`,
    bytes([resource]),
  )
  return rows.map((row) => ({ resource, engine: fromHex(String(row['engine'])), token: String(row['token']) }))
}

/** A row that was only created, and never raised, has no engine. */
function isFence(row: SqlRow): boolean {
  return row['engine'] !== ''
}

async function lift(query: SqlQuery, table: string, lease: Fenced, rows: readonly SqlRow[]): Promise<void> {
  const token = String(lease.token)
  for (const row of rows) {
    if (row['engine'] === lease.engine && row['token'] === token) continue
    await query(`UPDATE ${table} SET engine = ?, token = ${MARIADB.tokenOf('?')} WHERE resource = ?`, [
      Buffer.from(lease.engine),
      token,
      ...bytes([String(row['resource'])]),
    ])
  }
}

function bytes(texts: readonly string[]): Buffer[] {
  return texts.map((text) => Buffer.from(text))
}

import { GuardError } from '../errors.ts'
import type { Fenced } from './guard.ts'
import { errorNumber, mariadbDatabase, openTransaction, type MariadbClient } from './mariadb-clients.ts'
import { refusedOf, type Query, type Refused, type Row } from './rows.ts'
import { SqlStoreGuard, type Dialect, type SqlGuard, type SqlGuardOptions } from './sql.ts'

/**
 * A guard for MariaDB and MySQL (InnoDB). Takes a pool of mariadb or of mysql2/promise, or `{ query, transaction }` around
 * other software.
 */
export function mariadbGuard<Transaction>(
  client: MariadbClient<Transaction>,
  options: SqlGuardOptions = {},
): SqlGuard<Transaction> {
  return new SqlStoreGuard(MARIADB, mariadbDatabase(client), options)
}

const MARIADB: Dialect = {
  name: 'mariadb',
  // Bytes: text would be compared by a collation, for which 'a', 'A' and 'a ' may be one resource.
  schema: (table) =>
    `CREATE TABLE IF NOT EXISTS ${table} (resource VARBINARY(1024) PRIMARY KEY, engine VARBINARY(1020) NOT NULL, token BIGINT NOT NULL) ENGINE=InnoDB`,
  quote: (name) => `\`${name}\``,
  placeholder: () => '?',
  // Compared with a text, a number would become a double, and lose its last digits above 2^53.
  tokenOf: (placeholder) => `CAST(${placeholder} AS SIGNED)`,
  textOf: (column) => `CAST(${column} AS CHAR)`,
  isSame: (column, placeholder) => `CAST(${column} AS BINARY) = CAST(${placeholder} AS BINARY)`,
  raise,
  raiseWithin,
  // A deadlock that ended us and not the other; a wait for a row that took too long; a row changed after our snapshot.
  isConflict: (error) => [1213, 1205, 1020].includes(errorNumber(error)),
  isMissingTable: (error) => errorNumber(error) === 1146,
  isCreated: (error) => errorNumber(error) === 1050,
}

/**
 * The first statement locks the rows that are there and makes those that are not, so that the others see what stays. It
 * locks no gap on the way, in which two first holders of a resource would meet in a deadlock.
 */
async function raise(query: Query, table: string, lease: Fenced, from?: string): Promise<readonly Refused[]> {
  await lock(query, table, lease)
  const fences = await read(query, table, lease, ' FOR UPDATE')
  const refused = refusedOf(lease, fences, from)
  if (refused.length === 0) await lift(query, table, lease)
  return refused
}

/**
 * Under REPEATABLE READ, the default, plain reads show the data as of the first of them. If that was before another holder
 * raised the fence, what our transaction reads is older than what it will overwrite, and the server says nothing. It
 * shows in the fences themselves: the plain read has other ones than the locking read.
 */
async function raiseWithin(query: Query, table: string, lease: Fenced): Promise<readonly Refused[]> {
  await lock(query, table, lease)
  const isOpen = await openTransaction(query)
  const fences = await read(query, table, lease, ' FOR UPDATE')
  const asRead = await read(query, table, lease, '')
  if (!(await isOpen())) {
    throw new GuardError('within() needs a connection with an open transaction', lease.resources, { transient: false })
  }
  const refused = refusedOf(lease, fences)
  if (refused.length > 0) return refused
  if (JSON.stringify(asRead) !== JSON.stringify(fences)) {
    throw new GuardError(
      'the transaction had read before it entered, and a newer holder has written since: roll back and start again, with within() first',
      lease.resources,
    )
  }
  await lift(query, table, lease)
  return []
}

async function lock(query: Query, table: string, { resources, token, engine }: Fenced): Promise<void> {
  const rows = resources.map(() => `(?, ?, ${MARIADB.tokenOf('?')})`)
  await query(
    `INSERT INTO ${table} (resource, engine, token) VALUES ${rows.join(', ')} ON DUPLICATE KEY UPDATE resource = ${table}.resource`,
    resources.flatMap((resource) => [Buffer.from(resource), Buffer.from(engine), String(token)]),
  )
}

async function read(
  query: Query,
  table: string,
  { resources }: Fenced,
  how: '' | ' FOR UPDATE',
): Promise<readonly Row[]> {
  const rows = await query(
    `SELECT HEX(resource) AS resource, HEX(engine) AS engine, CAST(token AS CHAR) AS token FROM ${table}
     WHERE resource IN (${resources.map(() => '?').join(', ')}) ORDER BY resource${how}`,
    resources.map((resource) => Buffer.from(resource)),
  )
  return rows.map((row) => ({
    resource: fromHex(row['resource']),
    engine: fromHex(row['engine']),
    token: row['token'],
  }))
}

/** Text itself would be turned into whatever character set the connection has. */
function fromHex(hex: unknown): string {
  return Buffer.from(String(hex), 'hex').toString()
}

async function lift(query: Query, table: string, { resources, token, engine }: Fenced): Promise<void> {
  await query(
    `UPDATE ${table} SET engine = ?, token = ${MARIADB.tokenOf('?')} WHERE resource IN (${resources.map(() => '?').join(', ')})`,
    [Buffer.from(engine), String(token), ...resources.map((resource) => Buffer.from(resource))],
  )
}

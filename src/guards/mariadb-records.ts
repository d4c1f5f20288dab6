import { fromHex } from '../engines/mariadb/client.ts'
import { errorNumber } from '../engines/mariadb/errors.ts'
import type { SqlRow } from '../engines/shared/sql/client.ts'
import type { EffectStatements } from './sql-effects.ts'
import type { RunStatements } from './sql-runs.ts'

/** Independent of the time zone of the session, as UNIX_TIMESTAMP is not. */
const MS = (column: string): string => `CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${column}) DIV 1000 AS CHAR)`

/** Bytes, as the fences are: text would be compared by a collation, and converted to the connection's character set. */
export const MARIADB_EFFECTS: EffectStatements = {
  schema: (table) =>
    `CREATE TABLE IF NOT EXISTS ${table} (effect VARBINARY(1024) PRIMARY KEY, engine VARBINARY(1020) NOT NULL, ` +
    'token BIGINT NOT NULL, result MEDIUMBLOB, recorded_at DATETIME(3) NOT NULL, kept_until DATETIME(3), ' +
    'INDEX (kept_until)) ENGINE=InnoDB',
  async claim(query, table, key, { engine, token }) {
    try {
      await query(
        `INSERT INTO ${table} (effect, engine, token, recorded_at) VALUES (?, ?, CAST(? AS SIGNED), UTC_TIMESTAMP(3))`,
        [Buffer.from(key), Buffer.from(engine), String(token)],
      )
      return true
    } catch (error) {
      // A duplicate key. The statement alone is undone, the transaction goes on.
      if (errorNumber(error) === 1062) return false
      throw error
    }
  },
  async read(query, table, key) {
    // A locking read: others show what was there when the transaction began.
    const rows = await query(
      `SELECT HEX(result) AS result, ${MS('recorded_at')} AS at, CAST(token AS CHAR) AS token FROM ${table}
       WHERE effect = ? FOR UPDATE`,
      [Buffer.from(key)],
    )
    return rows.map((row) => ({ ...row, result: textOf(row, 'result') }))
  },
  async finish(query, table, key, { result, keepMs }) {
    await query(
      `UPDATE ${table} SET result = ?, recorded_at = UTC_TIMESTAMP(3),
       kept_until = DATE_ADD(UTC_TIMESTAMP(3), INTERVAL ? MICROSECOND) WHERE effect = ?`,
      [result === null ? null : Buffer.from(result), keepMs === undefined ? null : `${keepMs}000`, Buffer.from(key)],
    )
  },
  async clean(query, table, most) {
    await query(`DELETE FROM ${table} WHERE kept_until < UTC_TIMESTAMP(3) ORDER BY kept_until LIMIT ${most}`, [])
  },
}

export const MARIADB_RUNS: RunStatements = {
  schema: (table) =>
    `CREATE TABLE IF NOT EXISTS ${table} (owner VARBINARY(2048) PRIMARY KEY, job VARBINARY(1024) NOT NULL, ` +
    'engine VARBINARY(1020) NOT NULL, token BIGINT NOT NULL, began_at DATETIME(3) NOT NULL, ' +
    'outcome VARCHAR(10) CHARACTER SET ascii NOT NULL, took_ms BIGINT NOT NULL, message BLOB, INDEX (job, began_at)) ENGINE=InnoDB',
  async record(query, table, { owner, job, engine, token, outcome, tookMs, message }) {
    const same = outcome === 'began' ? `owner = ${table}.owner` : UPDATED
    await query(
      `INSERT INTO ${table} (owner, job, engine, token, outcome, took_ms, message, began_at)
       VALUES (?, ?, ?, CAST(? AS SIGNED), ?, CAST(? AS SIGNED), ?, DATE_SUB(UTC_TIMESTAMP(3), INTERVAL ? MICROSECOND))
       ON DUPLICATE KEY UPDATE ${same}`,
      [
        ...[owner, job, engine].map((text) => Buffer.from(text)),
        String(token),
        outcome,
        String(tookMs),
        message === undefined ? null : Buffer.from(message),
        `${tookMs}000`,
      ],
    )
  },
  async trim(query, table, job, most) {
    // A DELETE has no OFFSET, and its subquery no LIMIT: the owners are looked up first.
    const rows = await query(
      `SELECT HEX(owner) AS owner FROM ${table} WHERE job = ? ORDER BY began_at DESC, token DESC LIMIT 100 OFFSET ${most}`,
      [Buffer.from(job)],
    )
    if (rows.length === 0) return
    await query(
      `DELETE FROM ${table} WHERE owner IN (${rows.map(() => '?').join(', ')})`,
      rows.map((row) => Buffer.from(String(row['owner']), 'hex')),
    )
  },
  async read(query, table, job, limit) {
    const rows = await query(
      `SELECT HEX(owner) AS owner, HEX(engine) AS engine, CAST(token AS CHAR) AS token, ${MS('began_at')} AS at, outcome,
       CAST(took_ms AS CHAR) AS took, HEX(message) AS message
       FROM ${table} WHERE job = ? ORDER BY began_at DESC, token DESC LIMIT ${limit}`,
      [Buffer.from(job)],
    )
    return rows.map((row) => ({
      ...row,
      owner: textOf(row, 'owner'),
      engine: textOf(row, 'engine'),
      message: textOf(row, 'message'),
    }))
  },
}

const UPDATED = ['outcome', 'took_ms', 'message'].map((column) => `${column} = VALUES(${column})`).join(', ')

function textOf(row: SqlRow, column: string): string | null {
  const hex = row[column]
  return hex === null || hex === undefined ? null : fromHex(hex)
}

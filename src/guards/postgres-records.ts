import type { EffectStatements } from './sql-effects.ts'
import type { RunStatements } from './sql-runs.ts'

/** In one statement, so that the index is never missing: it is either all there, or nothing is. */
function together(...statements: readonly string[]): string {
  return `DO $ringfence$ BEGIN\n  ${statements.map((statement) => `${statement};`).join('\n  ')}\nEND $ringfence$`
}

/** The name of an index has no schema: it is in that of its table. */
function indexName(table: string, of: string): string {
  return `${table.split('.').at(-1)!.slice(0, -1)}_${of}"`
}

const MS = (column: string): string => `floor(extract(epoch FROM ${column}) * 1000)::bigint::text`

export const POSTGRES_EFFECTS: EffectStatements = {
  schema: (table) =>
    together(
      `CREATE TABLE IF NOT EXISTS ${table} (effect text PRIMARY KEY, engine text NOT NULL, token bigint NOT NULL, ` +
        'result text, recorded_at timestamptz NOT NULL DEFAULT now(), kept_until timestamptz)',
      `CREATE INDEX IF NOT EXISTS ${indexName(table, 'kept_until')} ON ${table} (kept_until) WHERE kept_until IS NOT NULL`,
    ),
  async claim(query, table, key, { engine, token }) {
    const rows = await query(
      `INSERT INTO ${table} (effect, engine, token) VALUES ($1, $2, $3::bigint) ON CONFLICT (effect) DO NOTHING RETURNING effect`,
      [key, engine, String(token)],
    )
    return rows.length > 0
  },
  read: (query, table, key) =>
    query(`SELECT result, ${MS('recorded_at')} AS at, token::text AS token FROM ${table} WHERE effect = $1`, [key]),
  async finish(query, table, key, { result, keepMs }) {
    await query(
      `UPDATE ${table} SET result = $2, recorded_at = clock_timestamp(),
       kept_until = clock_timestamp() + $3::bigint * interval '1 millisecond' WHERE effect = $1`,
      [key, result, keepMs === undefined ? null : String(keepMs)],
    )
  },
  async clean(query, table, most) {
    await query(
      `DELETE FROM ${table} WHERE effect IN
       (SELECT effect FROM ${table} WHERE kept_until < now() ORDER BY kept_until LIMIT ${most} FOR UPDATE SKIP LOCKED)`,
      [],
    )
  },
}

const BEGAN_AT = `clock_timestamp() - $6::bigint * interval '1 millisecond'`

export const POSTGRES_RUNS: RunStatements = {
  schema: (table) =>
    together(
      `CREATE TABLE IF NOT EXISTS ${table} (owner text PRIMARY KEY, job text NOT NULL, engine text NOT NULL, ` +
        'token bigint NOT NULL, began_at timestamptz NOT NULL, outcome text NOT NULL, took_ms bigint NOT NULL, message text)',
      `CREATE INDEX IF NOT EXISTS ${indexName(table, 'began_at')} ON ${table} (job, began_at)`,
    ),
  async record(query, table, { owner, job, engine, token, outcome, tookMs, message }) {
    const conflict =
      outcome === 'began'
        ? 'NOTHING'
        : 'UPDATE SET outcome = excluded.outcome, took_ms = excluded.took_ms, message = excluded.message'
    await query(
      `INSERT INTO ${table} (owner, job, engine, token, outcome, took_ms, message, began_at)
       VALUES ($1, $2, $3, $4::bigint, $5, $6::bigint, $7, ${BEGAN_AT}) ON CONFLICT (owner) DO ${conflict}`,
      [owner, job, engine, String(token), outcome, String(tookMs), message ?? null],
    )
  },
  async trim(query, table, job, most) {
    await query(
      `DELETE FROM ${table} WHERE owner IN
       (SELECT owner FROM ${table} WHERE job = $1 ORDER BY began_at DESC, token DESC OFFSET ${most} LIMIT 100)`,
      [job],
    )
  },
  read: (query, table, job, limit) =>
    query(
      `SELECT owner, engine, token::text AS token, ${MS('began_at')} AS at, outcome, took_ms::text AS took, message
       FROM ${table} WHERE job = $1 ORDER BY began_at DESC, token DESC LIMIT ${limit}`,
      [job],
    ),
}

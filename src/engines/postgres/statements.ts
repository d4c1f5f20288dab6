import { PAGE } from '../shared/sql/steps.ts'
import { DEFAULT_TABLE, tableParts } from '../shared/sql/table-name.ts'

/** Recognised by its message, since a statement without a function of its own cannot raise an error of its own. */
export const RACED = 'ringfence: taken meanwhile'

/**
 * When the server received the statement. Not now(), which is the start of a transaction, nor clock_timestamp(), which
 * moves on while the statement waits for a lock: the earlier time takes nothing that is not over and grants nothing longer
 * than was asked for, and one statement has only one time.
 */
const NOW = 'statement_timestamp()'
const CLOCK_US = `(extract(epoch FROM ${NOW}) * 1000000)::bigint`
const PID = 'pg_backend_pid()::text AS pid'
/** The names, as a JSON array in one text parameter: what drivers make of arrays differs. */
const NAMES = 'SELECT json_array_elements_text($1::text::json)'
const UNTIL = (ttl: string): string => `${NOW} + ${ttl}::text::bigint * interval '1 millisecond'`

export interface PostgresStatements {
  readonly create: string
  readonly exists: string
  readonly takeOne: string
  readonly takeAll: string
  readonly look: string
  readonly take: string
  readonly note: string
  readonly noteAll: string
  readonly extend: string
  readonly leave: string
  readonly release: string
  readonly handOver: string
  readonly page: string
}

export function quoted(table: string): string {
  return tableParts(table)
    .map((part) => `"${part}"`)
    .join('.')
}

/** The statement that creates the lease table, for those who migrate by hand. */
export function postgresSchema(table: string = DEFAULT_TABLE): string {
  return `CREATE TABLE IF NOT EXISTS ${quoted(table)} (
  resource text COLLATE "C" PRIMARY KEY,
  token bigint NOT NULL,
  owner text,
  session bigint,
  acquired_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  awaited boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);`
}

export function postgresStatements(table: string): PostgresStatements {
  const t = quoted(table)
  /** A row that nobody has: released, expired, or its session has ended (one of $5, a JSON array). */
  const isFree = `l.owner IS NULL OR l.expires_at <= ${NOW}`
  const isEnded = `l.session::text IN (SELECT json_array_elements_text($5::text::json))`
  const raced = `('${RACED}: ' || l.resource)::bigint`
  const changed = `owner = excluded.owner, session = excluded.session, acquired_at = excluded.acquired_at,
  expires_at = excluded.expires_at`
  /** Rows are locked in the order of their names, by every statement that locks several: nobody waits in a circle. */
  const ownRows = `SELECT resource, awaited, expires_at > ${NOW} AS live FROM ${t}
  WHERE resource = ANY (ARRAY(${NAMES})) AND owner = $2::text ORDER BY resource FOR UPDATE`
  return {
    create: postgresSchema(table),
    exists: 'SELECT (to_regclass($1::text) IS NOT NULL)::text AS there',

    takeOne: `INSERT INTO ${t} AS l (resource, token, owner, session, acquired_at, expires_at)
VALUES ($1::text, ${CLOCK_US}, $2::text, $4::text::bigint, ${NOW}, ${UNTIL('$3')})
ON CONFLICT (resource) DO UPDATE SET
  token = CASE WHEN l.owner = excluded.owner AND l.expires_at > ${NOW} THEN l.token
    ELSE greatest(l.token + 1, excluded.token) END,
  ${changed}
WHERE l.owner = excluded.owner OR ${isFree}
RETURNING token::text AS token, ${PID}`,

    // The clock is the token. If a row is held, or its counter is ahead of the clock, nothing is touched: a lock would be in
    // the way of the holder's renewals. What changes between that look and the insertion fails the statement, as in `take`.
    takeAll: `INSERT INTO ${t} AS l (resource, token, owner, session, acquired_at, expires_at)
SELECT name, ${CLOCK_US}, $2::text, $4::text::bigint, ${NOW}, ${UNTIL('$3')}
FROM json_array_elements_text($1::text::json) AS w (name)
WHERE NOT EXISTS (SELECT FROM ${t} AS l WHERE l.resource = ANY (ARRAY(${NAMES})) AND (NOT (${isFree}) OR l.token >= ${CLOCK_US}))
ORDER BY name COLLATE "C"
ON CONFLICT (resource) DO UPDATE SET
  token = CASE WHEN l.token < excluded.token AND (${isFree}) THEN excluded.token ELSE ${raced} END,
  ${changed}
RETURNING token::text AS token, ${PID}`,

    // A session that has ended has let go of its lock, so that we get it. Its own connection would get it as well, and so
    // would everybody on a replica, which knows no locks of the primary.
    look: `SELECT c.us::text AS clock, l.resource, l.token::text AS token, l.owner, l.session::text AS session,
  ceil(extract(epoch FROM l.expires_at - ${NOW}) * 1000)::bigint::text AS remaining, l.awaited::text AS awaited,
  CASE WHEN l.session <> coalesce($2::text::bigint, 0) AND NOT pg_is_in_recovery()
    THEN pg_try_advisory_xact_lock_shared(l.session) END::text AS ended
FROM (SELECT ${CLOCK_US} AS us) AS c LEFT JOIN ${t} AS l ON l.resource = ANY (ARRAY(${NAMES}))`,

    // An upsert sees the newest version of a row and locks it. One row that is not free fails the statement, and all rows
    // are as they were.
    take: `INSERT INTO ${t} AS l (resource, token, owner, session, acquired_at, expires_at)
SELECT name, $6::text::bigint, $2::text, $4::text::bigint, ${NOW}, ${UNTIL('$3')}
FROM json_array_elements_text($1::text::json) AS w (name) ORDER BY name COLLATE "C"
ON CONFLICT (resource) DO UPDATE SET
  token = CASE WHEN l.token < excluded.token AND (${isFree} OR ${isEnded}) THEN excluded.token
    ELSE ${raced} END,
  ${changed}
RETURNING ${PID}`,

    note: `UPDATE ${t} SET awaited = true WHERE resource = $1::text AND owner = $2::text RETURNING ${PID}`,

    noteAll: `WITH held AS MATERIALIZED (
  SELECT resource FROM ${t} WHERE resource = ANY (ARRAY(${NAMES})) AND owner IS NOT NULL AND NOT awaited
  ORDER BY resource FOR UPDATE
)
UPDATE ${t} AS l SET awaited = true FROM held WHERE l.resource = held.resource`,

    // One element for each resource, with the number, owner and ttl of its lease.
    extend: `WITH wanted AS MATERIALIZED (
  SELECT w.lease, w.resource, w.owner, w.ttl FROM json_to_recordset($1::text::json)
    AS w (lease int, resource text, owner text, ttl bigint)
), ours AS MATERIALIZED (
  SELECT w.lease, l.resource FROM ${t} AS l JOIN wanted AS w ON l.resource = w.resource COLLATE "C"
  WHERE l.owner = w.owner AND l.expires_at > ${NOW} ORDER BY l.resource FOR UPDATE OF l
), whole AS MATERIALIZED (
  SELECT lease FROM ours GROUP BY lease
  HAVING count(*) = (SELECT count(*) FROM wanted WHERE wanted.lease = ours.lease)
), renewed AS (
  UPDATE ${t} AS l SET expires_at = ${NOW} + w.ttl * interval '1 millisecond', session = $2::text::bigint
  FROM wanted AS w JOIN whole ON whole.lease = w.lease
  WHERE l.resource = w.resource COLLATE "C" AND l.owner = w.owner
  RETURNING w.lease
)
SELECT DISTINCT lease::text AS lease, ${PID} FROM renewed`,

    leave: `WITH ours AS MATERIALIZED (${ownRows})
UPDATE ${t} AS l SET expires_at = ${UNTIL('$3')}, session = NULL FROM ours
WHERE l.resource = ours.resource AND ours.live AND (SELECT bool_and(live) FROM ours) RETURNING ${PID}`,

    // Notifies only where somebody waits: transactions that notify commit one after the other, in the whole cluster.
    release: `WITH ours AS MATERIALIZED (${ownRows}), freed AS (
  UPDATE ${t} AS l SET owner = NULL, session = NULL, awaited = false, expires_at = ${NOW}
  FROM ours WHERE l.resource = ours.resource RETURNING ours.resource, ours.live, ours.awaited
)
SELECT count(*) FILTER (WHERE live)::text AS live, count(*) FILTER (WHERE awaited)::text AS awaited,
  count(pg_notify($3::text, $4::text || resource)) FILTER (WHERE awaited AND $3::text <> '')::text AS notified FROM freed`,

    handOver: `WITH ours AS MATERIALIZED (${ownRows}), moved AS (
  UPDATE ${t} AS l SET token = greatest(l.token + 1, ${CLOCK_US}), owner = $3::text, session = $5::text::bigint,
    acquired_at = ${NOW}, expires_at = ${UNTIL('$4')}
  FROM ours WHERE l.resource = ours.resource
    AND (SELECT count(*) FILTER (WHERE live) FROM ours) = json_array_length($1::text::json)
  RETURNING l.token
)
SELECT max(token)::text AS token, ${PID} FROM moved HAVING count(*) > 0`,

    page: `SELECT resource, owner, token::text AS token,
  ceil(extract(epoch FROM expires_at - ${NOW}) * 1000)::bigint::text AS remaining,
  floor(extract(epoch FROM ${NOW} - acquired_at) * 1000)::bigint::text AS held
FROM ${t} AS l WHERE NOT (${isFree}) AND resource > $1::text AND ($2::text IS NULL OR resource = $2::text)
  AND (session IS NULL OR session = $3::text::bigint OR pg_is_in_recovery() OR NOT pg_try_advisory_xact_lock_shared(session))
ORDER BY resource LIMIT ${PAGE}`,
  }
}

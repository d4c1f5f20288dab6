import { READERS } from '../shared/readers.ts'
import { PAGE } from '../shared/sql/steps.ts'
import { DEFAULT_TABLE, tableParts } from '../shared/sql/table-name.ts'
import { WANTED_MS } from '../shared/wanted.ts'

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

/*
 * Readers are a JSON object in the row, from owner to { token, since, until, session }. The owner of the row is then READERS, and
 * `expires_at` is the latest end of a reader. A row that nobody shares has none.
 */
const READER_UNTIL = `(r.value ->> 'until')::timestamptz`
const IS_SHARED = `l.owner = '${READERS}' AND l.expires_at > ${NOW}`
const IS_WANTED = `coalesce(l.wanted_until > ${NOW}, false)`
/** The owner $2 is a reader of the row. */
const IS_READER = `coalesce((l.readers -> $2::text ->> 'until')::timestamptz > ${NOW}, false)`
/** The readers beside the owner $2, null where there are none. */
const OTHERS = `(SELECT jsonb_object_agg(r.key, r.value) AS readers, max(${READER_UNTIL}) AS latest
    FROM jsonb_each(l.readers) AS r WHERE r.key <> $2::text AND ${READER_UNTIL} > ${NOW}) AS o`
/** The owner $2 as a reader, bound to the session $4. */
const READER = (token: string): string =>
  `jsonb_build_object($2::text, jsonb_strip_nulls(jsonb_build_object('token', (${token})::text, 'since', ${NOW}, 'until', ${UNTIL('$3')},
    'session', $4::text)))`

/** What is to be extended, by the number of its lease. */
const WANTED = `SELECT w.lease, w.resource, w.owner, w.ttl FROM json_to_recordset($1::text::json)
    AS w (lease int, resource text, owner text, ttl bigint)`
/** The leases that are their owners' in full. */
const WHOLE = `SELECT lease FROM ours GROUP BY lease
  HAVING count(*) = (SELECT count(*) FROM wanted WHERE wanted.lease = ours.lease)`
const RELEASED = `SELECT count(*) FILTER (WHERE live)::text AS live, count(*) FILTER (WHERE awaited)::text AS awaited,
  count(pg_notify($3::text, $4::text || resource)) FILTER (WHERE awaited AND $3::text <> '')::text AS notified FROM freed`

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
  awaited boolean NOT NULL DEFAULT false,
  readers jsonb,
  wanted_until timestamptz
) WITH (fillfactor = 70);`
}

/** Adds what a table of an earlier version lacks. */
export function postgresChange(table: string): string {
  return `ALTER TABLE ${quoted(table)} ADD COLUMN IF NOT EXISTS readers jsonb, ADD COLUMN IF NOT EXISTS wanted_until timestamptz;`
}

export const POSTGRES_COLUMNS = [
  'resource',
  'token',
  'owner',
  'session',
  'acquired_at',
  'expires_at',
  'awaited',
  'readers',
  'wanted_until',
]

export type PostgresStatements = ReturnType<typeof postgresStatements>

export function postgresStatements(table: string) {
  const t = quoted(table)
  /** A row that nobody has: released, expired, or its session has ended (one of $5, a JSON array). */
  const isFree = `l.owner IS NULL OR l.expires_at <= ${NOW}`
  const isEnded = `l.session::text IN (SELECT json_array_elements_text($5::text::json))`
  const areEnded = `l.readers IS NOT NULL AND NOT EXISTS (SELECT FROM jsonb_each(l.readers) AS r WHERE ${READER_UNTIL} > ${NOW}
    AND coalesce(r.value ->> 'session', '') NOT IN (SELECT json_array_elements_text($5::text::json)))`
  const raced = `('${RACED}: ' || l.resource)::bigint`
  const changed = `owner = excluded.owner, session = excluded.session, acquired_at = excluded.acquired_at,
  expires_at = excluded.expires_at, readers = NULL, wanted_until = NULL`
  const ownRows = `SELECT resource, awaited, expires_at > ${NOW} AS live FROM ${t}
  WHERE resource = ANY (ARRAY(${NAMES})) AND owner = $2::text ORDER BY resource FOR UPDATE`
  return {
    create: postgresSchema(table),
    change: postgresChange(table),
    columns: `SELECT string_agg(attname, ',') AS columns FROM pg_attribute
WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped`,

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

    // A reader that joins others gets their token, since there was no writer in between. One that asks again keeps its own.
    shareOne: `INSERT INTO ${t} AS l (resource, token, owner, acquired_at, expires_at, readers)
VALUES ($1::text, ${CLOCK_US}, '${READERS}', ${NOW}, ${UNTIL('$3')}, ${READER(CLOCK_US)})
ON CONFLICT (resource) DO UPDATE SET owner = excluded.owner, session = NULL, acquired_at = excluded.acquired_at,
  (token, expires_at, readers) = (
    SELECT n.token, greatest(o.latest, excluded.expires_at), coalesce(o.readers, '{}')
      || ${READER(`CASE WHEN ${IS_READER} THEN l.readers -> $2::text ->> 'token' ELSE n.token::text END`)}
    FROM (SELECT CASE WHEN ${IS_SHARED} THEN l.token ELSE greatest(l.token + 1, excluded.token) END AS token) AS n, ${OTHERS}
  )
WHERE ${IS_READER} OR NOT ${IS_WANTED} AND (${isFree} OR ${IS_SHARED})
RETURNING readers -> $2::text ->> 'token' AS token, ${PID}`,

    // With a token, $6, as `take`. Without one, as `takeAll`: the token is the clock, or that of the readers that have all rows.
    shareAll: `WITH seen AS MATERIALIZED (
  SELECT coalesce($6::text::bigint, CASE WHEN count(*) = json_array_length($1::text::json) AND bool_and(${IS_SHARED})
      AND min(l.token) = max(l.token) THEN min(l.token) ELSE ${CLOCK_US} END) AS token,
    $6::text IS NOT NULL OR coalesce(bool_and(NOT ${IS_WANTED} AND (${isFree} OR ${IS_SHARED})), true) AS open
  FROM ${t} AS l WHERE l.resource = ANY (ARRAY(${NAMES}))
)
INSERT INTO ${t} AS l (resource, token, owner, acquired_at, expires_at, readers)
SELECT name, seen.token, '${READERS}', ${NOW}, ${UNTIL('$3')}, ${READER('seen.token')}
FROM seen, json_array_elements_text($1::text::json) AS w (name) WHERE seen.open ORDER BY name COLLATE "C"
ON CONFLICT (resource) DO UPDATE SET owner = excluded.owner, session = NULL, acquired_at = excluded.acquired_at,
  token = CASE WHEN NOT ${IS_WANTED} AND (${IS_SHARED} AND l.token <= excluded.token
      OR (${isFree} OR ${isEnded}) AND l.token < excluded.token) THEN excluded.token ELSE ${raced} END,
  (expires_at, readers) = (
    SELECT greatest(o.latest, excluded.expires_at), coalesce(o.readers, '{}') || excluded.readers FROM ${OTHERS}
  )
RETURNING token::text AS token, ${PID}`,

    // A session that has ended has let go of its lock, so that we get it. Its own connection would get it as well, and so
    // would everybody on a replica, which knows no locks of the primary.
    look: `SELECT c.us::text AS clock, l.resource, l.token::text AS counter, coalesce(r.value ->> 'token', l.token::text) AS token,
  coalesce(r.key, l.owner) AS owner, (r.key IS NOT NULL)::text AS shared, h.session::text AS session,
  ceil(extract(epoch FROM coalesce(${READER_UNTIL}, l.expires_at) - ${NOW}) * 1000)::bigint::text AS remaining,
  coalesce(ceil(extract(epoch FROM l.wanted_until - ${NOW}) * 1000)::bigint, 0)::text AS wanted, l.awaited::text AS awaited,
  CASE WHEN h.session <> coalesce($2::text::bigint, 0) AND NOT pg_is_in_recovery()
    THEN pg_try_advisory_xact_lock_shared(h.session) END::text AS ended
FROM (SELECT ${CLOCK_US} AS us) AS c LEFT JOIN ${t} AS l ON l.resource = ANY (ARRAY(${NAMES}))
  LEFT JOIN LATERAL jsonb_each(l.readers) AS r ON true,
  LATERAL (SELECT coalesce((r.value ->> 'session')::bigint, l.session) AS session) AS h`,

    // An upsert sees the newest version of a row and locks it. One row that is not free fails the statement, and all rows
    // are as they were.
    take: `INSERT INTO ${t} AS l (resource, token, owner, session, acquired_at, expires_at)
SELECT name, $6::text::bigint, $2::text, $4::text::bigint, ${NOW}, ${UNTIL('$3')}
FROM json_array_elements_text($1::text::json) AS w (name) ORDER BY name COLLATE "C"
ON CONFLICT (resource) DO UPDATE SET
  token = CASE WHEN l.token < excluded.token AND (${isFree} OR ${isEnded} OR ${areEnded}) THEN excluded.token
    ELSE ${raced} END,
  ${changed}
RETURNING ${PID}`,

    // All of the rows, also those that are free: readers of one would keep the writer waiting after those of the other are gone.
    want: `WITH wanted AS MATERIALIZED (
  SELECT resource, ${IS_SHARED} AS shared FROM ${t} AS l WHERE resource = ANY (ARRAY(${NAMES})) ORDER BY resource FOR UPDATE
)
UPDATE ${t} AS l SET awaited = true, wanted_until = ${NOW} + interval '${WANTED_MS} milliseconds' FROM wanted
WHERE l.resource = wanted.resource AND (SELECT bool_or(shared) FROM wanted) RETURNING ${PID}`,

    // The counter: what was free and wanted by a writer may have been taken and released meanwhile.
    note: `UPDATE ${t} SET awaited = true
WHERE resource = $1::text AND owner IS NOT DISTINCT FROM $2::text AND token = $3::text::bigint RETURNING ${PID}`,

    noteAll: `WITH held AS MATERIALIZED (
  SELECT resource FROM ${t} WHERE resource = ANY (ARRAY(${NAMES})) AND owner IS NOT NULL AND NOT awaited
  ORDER BY resource FOR UPDATE
)
UPDATE ${t} AS l SET awaited = true FROM held WHERE l.resource = held.resource`,

    // One element for each resource, with the number, owner and ttl of its lease. Rows are locked in the order of their names, by
    // every statement that locks several: nobody waits in a circle.
    extend: `WITH wanted AS MATERIALIZED (${WANTED}), ours AS MATERIALIZED (
  SELECT w.lease, l.resource FROM ${t} AS l JOIN wanted AS w ON l.resource = w.resource COLLATE "C"
  WHERE l.owner = w.owner AND l.expires_at > ${NOW} ORDER BY l.resource FOR UPDATE OF l
), whole AS MATERIALIZED (${WHOLE}), renewed AS (
  UPDATE ${t} AS l SET expires_at = ${NOW} + w.ttl * interval '1 millisecond', session = $2::text::bigint
  FROM wanted AS w JOIN whole ON whole.lease = w.lease
  WHERE l.resource = w.resource COLLATE "C" AND l.owner = w.owner
  RETURNING w.lease
)
SELECT DISTINCT lease::text AS lease, ${PID} FROM renewed`,

    // The same with readers among them, of which several may be in one row.
    extendShared: `WITH wanted AS MATERIALIZED (${WANTED}), ours AS MATERIALIZED (
  SELECT w.lease, l.resource, w.owner, w.ttl FROM ${t} AS l JOIN wanted AS w ON l.resource = w.resource COLLATE "C"
  WHERE l.owner = w.owner AND l.expires_at > ${NOW} OR (l.readers -> w.owner ->> 'until')::timestamptz > ${NOW}
  ORDER BY l.resource FOR UPDATE OF l
), whole AS MATERIALIZED (${WHOLE}), renewals AS MATERIALIZED (
  SELECT resource, max(ttl) AS ttl, jsonb_object_agg(owner, ttl) AS ttls FROM ours JOIN whole USING (lease) GROUP BY resource
), renewed AS (
  UPDATE ${t} AS l SET session = CASE WHEN l.readers IS NULL THEN $2::text::bigint END, (expires_at, readers) = (
    SELECT coalesce(max(${READER_UNTIL}), ${NOW} + n.ttl * interval '1 millisecond'), jsonb_object_agg(r.key, r.value)
      FILTER (WHERE r.key IS NOT NULL)
    FROM (SELECT old.key, CASE WHEN n.ttls -> old.key IS NULL THEN old.value ELSE jsonb_strip_nulls(old.value
        || jsonb_build_object('until', ${NOW} + (n.ttls ->> old.key)::bigint * interval '1 millisecond', 'session', $2::text)) END AS value
      FROM jsonb_each(l.readers) AS old) AS r WHERE ${READER_UNTIL} > ${NOW}
  )
  FROM renewals AS n WHERE l.resource = n.resource
)
SELECT lease::text AS lease, ${PID} FROM whole`,

    // Notifies only where somebody waits: transactions that notify commit one after the other, in the whole cluster.
    release: `WITH ours AS MATERIALIZED (${ownRows}), freed AS (
  UPDATE ${t} AS l SET owner = NULL, session = NULL, awaited = false, expires_at = ${NOW}
  FROM ours WHERE l.resource = ours.resource RETURNING ours.resource, ours.live, ours.awaited
)
${RELEASED}`,

    // The same for a lease that may be a reader's: only the last reader frees the row.
    releaseShared: `WITH ours AS MATERIALIZED (
  SELECT resource, awaited, owner = $2::text AND expires_at > ${NOW} OR ${IS_READER} AS live FROM ${t} AS l
  WHERE resource = ANY (ARRAY(${NAMES})) AND (owner = $2::text OR readers -> $2::text IS NOT NULL) ORDER BY resource FOR UPDATE
), freed AS (
  UPDATE ${t} AS l SET session = NULL, (owner, awaited, expires_at, readers) = (
    SELECT CASE WHEN o.readers IS NOT NULL THEN l.owner END, l.awaited AND o.readers IS NOT NULL, coalesce(o.latest, ${NOW}), o.readers
    FROM ${OTHERS}
  )
  FROM ours WHERE l.resource = ours.resource RETURNING ours.resource, ours.live, ours.awaited AND l.owner IS NULL AS awaited
)
${RELEASED}`,

    handOver: `WITH ours AS MATERIALIZED (${ownRows}), moved AS (
  UPDATE ${t} AS l SET token = greatest(l.token + 1, ${CLOCK_US}), owner = $3::text, session = $5::text::bigint,
    acquired_at = ${NOW}, expires_at = ${UNTIL('$4')}
  FROM ours WHERE l.resource = ours.resource
    AND (SELECT count(*) FILTER (WHERE live) FROM ours) = json_array_length($1::text::json)
  RETURNING l.token
)
SELECT max(token)::text AS token, ${PID} FROM moved HAVING count(*) > 0`,

    // A page is as many resources, each with all its readers. Where they have all ended, it is a row without an owner.
    page: `SELECT l.resource, CASE WHEN l.owner = '${READERS}' THEN r.key ELSE l.owner END AS owner,
  coalesce(r.value ->> 'token', l.token::text) AS token, (r.key IS NOT NULL)::text AS shared,
  ceil(extract(epoch FROM coalesce(${READER_UNTIL}, l.expires_at) - ${NOW}) * 1000)::bigint::text AS remaining,
  floor(extract(epoch FROM ${NOW} - coalesce((r.value ->> 'since')::timestamptz, l.acquired_at)) * 1000)::bigint::text AS held
FROM (
  SELECT * FROM ${t} AS l WHERE NOT (${isFree}) AND resource > $1::text AND ($2::text IS NULL OR resource = $2::text)
    AND ${isBound('session')} ORDER BY resource LIMIT ${PAGE}
) AS l LEFT JOIN LATERAL (
  SELECT r.key, r.value FROM jsonb_each(l.readers) AS r
  WHERE ${READER_UNTIL} > ${NOW} AND ${isBound(`(r.value ->> 'session')::bigint`)}
) AS r ON true
ORDER BY l.resource, r.value ->> 'since', r.key`,
  }
}

/** A lease without a session has not ended with one; nor has one of the session $3, which is our own, or of one that has its lock. */
function isBound(session: string): string {
  return `(${session} IS NULL OR ${session} = $3::text::bigint OR pg_is_in_recovery()
    OR NOT pg_try_advisory_xact_lock_shared(${session}))`
}

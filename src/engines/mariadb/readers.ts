import { columnText, type SqlRow } from '../shared/sql/client.ts'
import type { TableRow, Take } from '../shared/sql/steps.ts'
import { READERS } from '../shared/readers.ts'
import { fromHex } from './client.ts'

/*
 * Readers are a JSON object in the row: from the owner, as bytes in hexadecimal, to { token, since, until }, the times in µs since
 * 1970. The owner of the row is then READERS, and `expires_at` is the latest end of a reader. A row that nobody shares has none.
 */

/**
 * When the statement began, in UTC. Not SYSDATE(), which moves on while it waits for a lock: the earlier
 * time takes nothing that is not over and grants nothing longer than was asked for, and one statement has only one time.
 */
export const NOW = 'UTC_TIMESTAMP(6)'
/** In µs since 1970. */
export const CLOCK = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${NOW})`
export const SHARED_OWNER = bytes(READERS)
export const IS_SHARED = `(owner = ${SHARED_OWNER} AND expires_at > ${NOW})`
export const IS_WANTED = `COALESCE(wanted_until > ${NOW}, FALSE)`

interface TableReader {
  readonly owner: string
  readonly token: bigint
  readonly sinceUs: number
  readonly untilUs: number
}

/** The readers of a row, from its JSON as bytes in hexadecimal. */
function readersIn(hex: string | null | undefined): readonly TableReader[] {
  if (hex === null || hex === undefined) return []
  const readers = JSON.parse(fromHex(hex)) as Record<string, { token: string; since: number; until: number }>
  return Object.entries(readers).map(([key, { token, since, until }]) => ({
    owner: fromHex(key.slice(1)),
    token: BigInt(token),
    sinceUs: since,
    untilUs: until,
  }))
}

/** One for the row, or one for each reader that has not ended. */
export function tableRows(row: SqlRow, clockUs: bigint): readonly (TableRow & { readonly sinceUs?: number })[] {
  const owner = row['owner']
  const counter = BigInt(columnText(row, 'token'))
  const alone = {
    resource: fromHex(columnText(row, 'resource')),
    counter,
    token: counter,
    owner: owner === null || owner === undefined ? undefined : fromHex(owner),
    remainingMs: Number(columnText(row, 'remaining')),
    session: undefined,
    isEnded: false,
    isAwaited: false,
    isShared: false,
    wantedMs: Number(row['wanted'] ?? 0),
  }
  if (alone.owner !== READERS) return [alone]
  const readers = readersIn(row['readers']).map(({ owner, token, sinceUs, untilUs }) => {
    const remainingMs = Math.ceil((untilUs - Number(clockUs)) / 1000)
    return { ...alone, owner, token, remainingMs, isShared: true, sinceUs }
  })
  const live = readers.filter(({ remainingMs }) => remainingMs > 0)
  return live.length > 0 ? live : [{ ...alone, owner: undefined }]
}

/** A name that needs no quotes in a path. */
function key(owner: string): string {
  return `o${Buffer.from(owner).toString('hex')}`
}

export function isReader(owner: string): string {
  return `COALESCE(CAST(JSON_EXTRACT(readers, '$.${key(owner)}.until') AS SIGNED) > ${CLOCK}, FALSE)`
}

export function tokenOf(owner: string): string {
  return `JSON_UNQUOTE(JSON_EXTRACT(readers, '$.${key(owner)}.token'))`
}

function entry({ ttlMs }: Pick<Take, 'ttlMs'>, token: string): string {
  return `JSON_OBJECT('token', CAST(${token} AS CHAR), 'since', ${CLOCK}, 'until', ${CLOCK} + ${microseconds(ttlMs)})`
}

/** The readers of a row that has no other. */
export function onlyReader(take: Take, token: string): string {
  return `JSON_OBJECT('${key(take.owner)}', ${entry(take, token)})`
}

/** The others of a row who are still there, and this one. */
export function withReader(take: Take, token: string): string {
  const at = `CONCAT('$.', k)`
  const live = `SELECT JSON_OBJECTAGG(k, JSON_EXTRACT(readers, ${at}))
    FROM JSON_TABLE(JSON_KEYS(readers), '$[*]' COLUMNS (k VARCHAR(2050) PATH '$')) AS j
    WHERE CAST(JSON_EXTRACT(readers, CONCAT(${at}, '.until')) AS SIGNED) > ${CLOCK}`
  // Nearly always nobody has died, and it is much cheaper to find that out.
  const others = `IF(${ends('MIN', 'readers')} > ${CLOCK}, readers, (${live}))`
  return `JSON_SET(COALESCE(${others}, '{}'), '$.${key(take.owner)}', ${entry(take, token)})`
}

export function withoutReader(owner: string): string {
  return `JSON_REMOVE(readers, '$.${key(owner)}')`
}

/** The readers of a row, of which these have a new end. */
export function withEnds(leases: readonly Pick<Take, 'owner' | 'ttlMs'>[]): string {
  const ends = leases.map(({ owner, ttlMs }) => `'$.${key(owner)}.until', ${CLOCK} + ${microseconds(ttlMs)}`)
  return `JSON_SET(readers, ${ends.join(', ')})`
}

export function withToken(owner: string, token: bigint): string {
  return `JSON_SET(readers, '$.${key(owner)}.token', '${token}')`
}

/** The latest end of these readers, in µs since 1970; null where there are none. */
export function latestOf(readers: string): string {
  return ends('MAX', readers)
}

function ends(which: 'MIN' | 'MAX', readers: string): string {
  return `(SELECT ${which}(u) FROM JSON_TABLE(${readers}, '$.*' COLUMNS (u BIGINT PATH '$.until')) AS j)`
}

export function time(us: string): string {
  return `TIMESTAMP('1970-01-01') + INTERVAL ${us} MICROSECOND`
}

export function bytes(text: string): string {
  return `X'${Buffer.from(text).toString('hex')}'`
}

export function microseconds(ms: number): number {
  return Math.ceil(ms) * 1000
}

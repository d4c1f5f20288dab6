import type { LeaseRef } from '../../engine.ts'
import { PAGE, type Take } from '../shared/sql/steps.ts'
import { DEFAULT_TABLE, tableParts } from '../shared/sql/table-name.ts'
import { WANTED_MS } from '../shared/wanted.ts'
import {
  bytes,
  CLOCK,
  IS_SHARED,
  IS_WANTED,
  isReader,
  latestOf,
  microseconds,
  NOW,
  onlyReader,
  SHARED_OWNER,
  time,
  tokenOf,
  withEnds,
  withoutReader,
  withReader,
  withToken,
} from './readers.ts'

const IS_LIVE = `expires_at > ${NOW}`
const IS_FREE = `(owner IS NULL OR NOT ${IS_LIVE})`
/** What `look` and `takeOne` return of a row. */
const SHOWN = `HEX(resource) AS resource, HEX(owner) AS owner, CAST(token AS CHAR) AS token,
  CAST(CEIL(TIMESTAMPDIFF(MICROSECOND, ${NOW}, expires_at) / 1000) AS CHAR) AS remaining,
  CAST(CEIL(TIMESTAMPDIFF(MICROSECOND, ${NOW}, wanted_until) / 1000) AS CHAR) AS wanted,
  HEX(CAST(readers AS CHAR)) AS readers`
/** The counter is above 0, so that this overflows and fails the statement, in every sql_mode. */
const FAIL = '9223372036854775807 + token'
const TAKEN = `token = IF(token < VALUES(token) AND ${IS_FREE}, VALUES(token), ${FAIL}),
  owner = VALUES(owner), acquired_at = VALUES(acquired_at), expires_at = VALUES(expires_at), readers = NULL, wanted_until = NULL`

export function quoted(table: string): string {
  return tableParts(table)
    .map((part) => `\`${part}\``)
    .join('.')
}

/** The statement that creates the lease table, for those who migrate by hand. */
export function mariadbSchema(table: string = DEFAULT_TABLE): string {
  return `CREATE TABLE IF NOT EXISTS ${quoted(table)} (
  resource VARBINARY(1024) NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL,
  owner VARBINARY(2048) NULL,
  acquired_at DATETIME(6) NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  readers JSON NULL,
  wanted_until DATETIME(6) NULL
) ENGINE = InnoDB;`
}

/** Adds what a table of an earlier version lacks. */
export function mariadbChange(table: string): string {
  return `ALTER TABLE ${quoted(table)} MODIFY COLUMN owner VARBINARY(2048) NULL, ADD COLUMN readers JSON NULL, ADD COLUMN wanted_until DATETIME(6) NULL;`
}

export const MARIADB_COLUMNS = ['resource', 'token', 'owner', 'acquired_at', 'expires_at', 'readers', 'wanted_until']

/**
 * Statements without parameters: names and owners are written as bytes in hexadecimal, so that neither character sets nor
 * collations nor a driver's idea of quoting can make two names one, or a name a statement.
 */
export class MariadbStatements {
  readonly create: string
  readonly change: string
  readonly columns: string
  readonly #table: string

  constructor(table: string) {
    const parts = tableParts(table)
    const name = parts.at(-1)!
    const schema = parts.length === 2 ? `'${parts[0]}'` : 'DATABASE()'
    this.#table = quoted(table)
    this.create = mariadbSchema(table)
    this.change = mariadbChange(table)
    this.columns = `SELECT CAST(GROUP_CONCAT(column_name) AS CHAR) AS columns FROM information_schema.columns
WHERE table_schema = ${schema} AND table_name = '${name}'`
  }

  /**
   * Reads that decide something lock their rows, for as long as the statement takes: software that spreads reads over
   * replicas sends a locking read to the primary, and a replica may lag behind.
   */
  look(resources: readonly string[]): string {
    return `SELECT CAST(${CLOCK} AS CHAR) AS clock, IF(@@autocommit, 'on', 'off') AS autocommit, ${SHOWN}
FROM (SELECT 1) AS one LEFT JOIN ${this.#table} AS l ON l.resource IN (${names(resources)})
ORDER BY l.resource FOR UPDATE`
  }

  /**
   * Takes the row if it is free, keeps it if it is the owner's already, and otherwise leaves it as it is. Returns the row as it
   * is then; without autocommit it touches nothing and returns nothing. The assignments mean the same whether each sees those
   * before it, as is usual here, or none, as with SIMULTANEOUS_ASSIGNMENT. So they do in every statement of this file.
   */
  takeOne({ resources, owner, ttlMs }: Take): string {
    return `INSERT INTO ${this.#table} (resource, token, owner, acquired_at, expires_at)
SELECT ${bytes(resources[0]!)}, ${CLOCK}, ${bytes(owner)}, ${NOW}, ${until(ttlMs)} FROM DUAL WHERE @@autocommit
ON DUPLICATE KEY UPDATE
  token = IF(${IS_FREE}, GREATEST(token + 1, VALUES(token)), token),
  acquired_at = IF(${IS_FREE}, VALUES(acquired_at), acquired_at),
  readers = IF(${IS_FREE}, NULL, readers),
  wanted_until = IF(${IS_FREE}, NULL, wanted_until),
  owner = IF(${IS_FREE}, VALUES(owner), owner),
  expires_at = IF(owner = VALUES(owner) OR ${IS_FREE}, VALUES(expires_at), expires_at)
RETURNING CAST(${CLOCK} AS CHAR) AS clock, ${SHOWN}`
  }

  /**
   * Takes all rows, with the clock as their token. Like `take`, it fails as a whole if one of them is not free, and also if a
   * counter is ahead of the clock. Without autocommit it touches nothing and returns nothing.
   */
  takeAll({ resources, owner, ttlMs }: Take): string {
    const wanted = sorted(resources).map((name, index) => (index === 0 ? `SELECT ${name} AS name` : `SELECT ${name}`))
    return `INSERT INTO ${this.#table} (resource, token, owner, acquired_at, expires_at)
SELECT name, ${CLOCK}, ${bytes(owner)}, ${NOW}, ${until(ttlMs)}
FROM (${wanted.join(' UNION ALL ')}) AS wanted WHERE @@autocommit ORDER BY name
ON DUPLICATE KEY UPDATE ${TAKEN}
RETURNING CAST(token AS CHAR) AS token`
  }

  /** As `takeOne`, for a reader. One that joins others gets their token: there was no writer in between. */
  shareOne(take: Take): string {
    const { owner, ttlMs } = take
    const isGranted = `(${isReader(owner)} OR NOT ${IS_WANTED} AND (${IS_FREE} OR ${IS_SHARED}))`
    const token = `IF(${IS_SHARED}, token, GREATEST(token + 1, VALUES(token)))`
    return `INSERT INTO ${this.#table} (resource, token, owner, acquired_at, expires_at, readers)
SELECT ${bytes(take.resources[0]!)}, ${CLOCK}, ${SHARED_OWNER}, ${NOW}, ${until(ttlMs)}, ${onlyReader(take, CLOCK)}
FROM DUAL WHERE @@autocommit
ON DUPLICATE KEY UPDATE
  readers = IF(${isGranted}, ${withReader(take, `IF(${isReader(owner)}, ${tokenOf(owner)}, ${token})`)}, readers),
  token = IF(${isGranted}, ${token}, token),
  acquired_at = IF(${isGranted}, VALUES(acquired_at), acquired_at),
  owner = IF(${isGranted}, VALUES(owner), owner),
  expires_at = IF(${isGranted}, ${latestEnd(owner)}, expires_at)
RETURNING CAST(${CLOCK} AS CHAR) AS clock, ${SHOWN}`
  }

  /**
   * As `takeAll`, for a reader. Rows that others share keep their counters, so that the tokens which it returns may differ: then
   * `raise` makes the highest of them that of all rows.
   */
  shareAll(take: Take): string {
    const { resources, owner, ttlMs } = take
    const wanted = sorted(resources).map((name, index) => (index === 0 ? `SELECT ${name} AS name` : `SELECT ${name}`))
    const isGranted = `${isReader(owner)} OR NOT ${IS_WANTED} AND (${IS_SHARED} OR ${IS_FREE} AND token < VALUES(token))`
    const token = `IF(${IS_SHARED}, token, VALUES(token))`
    return `INSERT INTO ${this.#table} (resource, token, owner, acquired_at, expires_at, readers)
SELECT name, ${CLOCK}, ${SHARED_OWNER}, ${NOW}, ${until(ttlMs)}, ${onlyReader(take, CLOCK)}
FROM (${wanted.join(' UNION ALL ')}) AS wanted WHERE @@autocommit ORDER BY name
ON DUPLICATE KEY UPDATE token = IF(${isGranted}, ${token}, ${FAIL}),
  readers = ${withReader(take, `IF(${isReader(owner)}, ${tokenOf(owner)}, ${token})`)},
  acquired_at = VALUES(acquired_at), owner = VALUES(owner), expires_at = ${latestEnd(owner)}
RETURNING ${tokenOf(owner)} AS token`
  }

  raise({ resources, owner }: Take, token: bigint): string {
    return `UPDATE ${this.#table} SET token = GREATEST(token, ${token}), readers = ${withToken(owner, token)}
WHERE resource IN (${names(resources)}) AND ${isReader(owner)} ORDER BY resource`
  }

  /** As `take`, for a reader. */
  share(take: Take & { token: bigint }): string {
    const { resources, owner, ttlMs, token } = take
    const terms = `${token}, ${SHARED_OWNER}, ${NOW}, ${until(ttlMs)}, ${onlyReader(take, String(token))}`
    const rows = sorted(resources).map((name) => `(${name}, ${terms})`)
    const isOpen = `NOT ${IS_WANTED} AND (${IS_SHARED} AND token <= VALUES(token) OR ${IS_FREE} AND token < VALUES(token))`
    return `INSERT INTO ${this.#table} (resource, token, owner, acquired_at, expires_at, readers) VALUES ${rows.join(', ')}
ON DUPLICATE KEY UPDATE token = IF(${isOpen}, VALUES(token), ${FAIL}), readers = ${withReader(take, String(token))},
  acquired_at = VALUES(acquired_at), owner = VALUES(owner), expires_at = ${latestEnd(owner)}`
  }

  /** Keeps new readers out, of those that readers have, or of all of them. */
  want(resources: readonly string[], which: 'shared' | 'all'): string {
    return `UPDATE ${this.#table} SET wanted_until = ${until(WANTED_MS)}
WHERE resource IN (${names(resources)})${which === 'shared' ? ` AND ${IS_SHARED}` : ''} ORDER BY resource`
  }

  /** One row that is not free fails the statement, and all rows are as they were. */
  take({ resources, owner, ttlMs, token }: Take & { token: bigint }): string {
    const rows = sorted(resources).map((name) => `(${name}, ${token}, ${bytes(owner)}, ${NOW}, ${until(ttlMs)})`)
    return `INSERT INTO ${this.#table} (resource, token, owner, acquired_at, expires_at) VALUES ${rows.join(', ')}
ON DUPLICATE KEY UPDATE ${TAKEN}`
  }

  /**
   * An owner never has other resources than those it asked for, so the two lists name no pair that was not meant. Rows are
   * locked in the order of their names, by every statement that locks several.
   */
  extend(leases: readonly LeaseRef[]): string {
    return `UPDATE ${this.#table} SET expires_at = ${untilOf(leases)} WHERE ${this.#areOurs(leases)} ORDER BY resource`
  }

  /** A row is extended only if it has all of the readers of the list that should have it. */
  extendReaders(leases: readonly LeaseRef[]): string {
    const byName = new Map<string, LeaseRef[]>()
    for (const lease of leases) {
      for (const name of lease.resources.map(bytes)) byName.set(name, [...(byName.get(name) ?? []), lease])
    }
    const each = (what: (readers: readonly LeaseRef[]) => string): string =>
      `CASE resource ${[...byName].map(([name, readers]) => `WHEN ${name} THEN ${what(readers)}`).join(' ')} END`
    const readers = each(withEnds)
    const areOurs = each((own) => own.map(({ owner }) => isReader(owner)).join(' AND '))
    return `UPDATE ${this.#table} SET readers = ${readers}, expires_at = ${time(latestOf(readers))}
WHERE resource IN (${[...byName.keys()].sort().join(', ')}) AND ${areOurs} ORDER BY resource`
  }

  held(leases: readonly LeaseRef[]): string {
    return `SELECT HEX(resource) AS resource, HEX(owner) AS owner FROM ${this.#table} WHERE ${this.#areOurs(leases)}
ORDER BY resource FOR UPDATE`
  }

  /** A plain read: it decides nothing, but says where an attempt may succeed. */
  counters(resources: readonly string[]): string {
    return `SELECT HEX(resource) AS resource, CAST(token AS CHAR) AS token, 
  IF(${IS_FREE}, 'free', IF(owner = ${SHARED_OWNER}, 'shared', 'held')) AS state
FROM ${this.#table} WHERE resource IN (${names(resources)})`
  }

  release({ resources, owner }: Pick<LeaseRef, 'resources' | 'owner'>): string {
    return `UPDATE ${this.#table} SET owner = NULL, expires_at = ${NOW}
WHERE resource IN (${names(resources)}) AND owner = ${bytes(owner)} AND ${IS_LIVE} ORDER BY resource`
  }

  /** The same, for a lease that may be a reader's: only the last reader frees the row. */
  releaseReader({ resources, owner }: Pick<LeaseRef, 'resources' | 'owner'>): string {
    const latest = latestOf(withoutReader(owner))
    const isShared = `COALESCE(${latest} > ${CLOCK}, FALSE)`
    return `UPDATE ${this.#table} SET owner = IF(${isShared}, owner, NULL), expires_at = IF(${isShared}, ${time(latest)}, ${NOW}),
  readers = IF(${isShared}, ${withoutReader(owner)}, NULL)
WHERE resource IN (${names(resources)}) AND (owner = ${bytes(owner)} AND ${IS_LIVE} OR ${isReader(owner)}) ORDER BY resource`
  }

  handOver(lease: LeaseRef, next: Take): string {
    return `UPDATE ${this.#table} SET token = token + 1, owner = ${bytes(next.owner)}, acquired_at = ${NOW}, expires_at = ${until(next.ttlMs)}
WHERE resource IN (${names(lease.resources)}) AND owner = ${bytes(lease.owner)} AND token = ${lease.token} AND ${IS_LIVE}
ORDER BY resource`
  }

  page(after: string, resource?: string): string {
    const one = resource === undefined ? '' : ` AND resource = ${bytes(resource)}`
    return `SELECT CAST(${CLOCK} AS CHAR) AS clock, ${SHOWN},
  CAST(TIMESTAMPDIFF(MICROSECOND, acquired_at, ${NOW}) DIV 1000 AS CHAR) AS held
FROM ${this.#table} WHERE owner IS NOT NULL AND ${IS_LIVE} AND resource > ${bytes(after)}${one}
ORDER BY resource LIMIT ${PAGE}`
  }

  #areOurs(leases: readonly LeaseRef[]): string {
    const owners = leases.map(({ owner }) => bytes(owner)).join(', ')
    return `resource IN (${names(leases.flatMap(({ resources }) => resources))}) AND owner IN (${owners}) AND ${IS_LIVE}`
  }
}

function sorted(resources: readonly string[]): string[] {
  return resources.map(bytes).sort()
}

function names(resources: readonly string[]): string {
  return sorted(resources).join(', ')
}

function until(ttlMs: number): string {
  return `${NOW} + INTERVAL ${microseconds(ttlMs)} MICROSECOND`
}

/** The latest end of a row that readers share, of which this one is new; the others may all have ended. */
function latestEnd(owner: string): string {
  return `GREATEST(VALUES(expires_at), COALESCE(${time(latestOf(withoutReader(owner)))}, VALUES(expires_at)))`
}

/** Most leases of a process have the same ttl. */
function untilOf(leases: readonly LeaseRef[]): string {
  const { ttlMs } = leases[0]!
  const others = leases.filter((lease) => lease.ttlMs !== ttlMs)
  if (others.length === 0) return until(ttlMs)
  const cases = others.map((lease) => `WHEN ${bytes(lease.owner)} THEN ${microseconds(lease.ttlMs)}`)
  return `${NOW} + INTERVAL (CASE owner ${cases.join(' ')} ELSE ${microseconds(ttlMs)} END) MICROSECOND`
}

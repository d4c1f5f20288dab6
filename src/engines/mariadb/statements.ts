import type { LeaseRef } from '../../engine.ts'
import { PAGE, type Take } from '../shared/sql/steps.ts'
import { DEFAULT_TABLE, tableParts } from '../shared/sql/table-name.ts'

/**
 * When the statement began, in UTC. Not SYSDATE(), which moves on while it waits for a lock: the earlier
 * time takes nothing that is not over and grants nothing longer than was asked for, and one statement has only one time.
 */
const NOW = 'UTC_TIMESTAMP(6)'
const IS_LIVE = `expires_at > ${NOW}`
const IS_FREE = `(owner IS NULL OR NOT ${IS_LIVE})`
/** In µs since 1970. */
const CLOCK = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${NOW})`
/** What `look` and `takeOne` return of a row. */
const SHOWN = `HEX(resource) AS resource, HEX(owner) AS owner, CAST(token AS CHAR) AS token,
  CAST(CEIL(TIMESTAMPDIFF(MICROSECOND, ${NOW}, expires_at) / 1000) AS CHAR) AS remaining`
/** The counter is above 0, so that this overflows and fails the statement, in every sql_mode. */
const FAIL = '9223372036854775807 + token'
const TAKEN = `token = IF(token < VALUES(token) AND ${IS_FREE}, VALUES(token), ${FAIL}),
  owner = VALUES(owner), acquired_at = VALUES(acquired_at), expires_at = VALUES(expires_at)`

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
  expires_at DATETIME(6) NOT NULL
) ENGINE = InnoDB;`
}

/**
 * Statements without parameters: names and owners are written as bytes in hexadecimal, so that neither character sets nor
 * collations nor a driver's idea of quoting can make two names one, or a name a statement.
 */
export class MariadbStatements {
  readonly create: string
  readonly exists: string
  readonly #table: string

  constructor(table: string) {
    const parts = tableParts(table)
    const name = parts.at(-1)!
    const schema = parts.length === 2 ? `'${parts[0]}'` : 'DATABASE()'
    this.#table = quoted(table)
    this.create = mariadbSchema(table)
    this.exists = `SELECT CAST(COUNT(*) AS CHAR) AS tables FROM information_schema.tables
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
   * before it, as is usual here, or none, as with SIMULTANEOUS_ASSIGNMENT.
   */
  takeOne({ resources, owner, ttlMs }: Take): string {
    return `INSERT INTO ${this.#table} (resource, token, owner, acquired_at, expires_at)
SELECT ${bytes(resources[0]!)}, ${CLOCK}, ${bytes(owner)}, ${NOW}, ${until(ttlMs)} FROM DUAL WHERE @@autocommit
ON DUPLICATE KEY UPDATE
  token = IF(${IS_FREE}, GREATEST(token + 1, VALUES(token)), token),
  acquired_at = IF(${IS_FREE}, VALUES(acquired_at), acquired_at),
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

  held(leases: readonly LeaseRef[]): string {
    return `SELECT HEX(resource) AS resource, HEX(owner) AS owner FROM ${this.#table} WHERE ${this.#areOurs(leases)}
ORDER BY resource FOR UPDATE`
  }

  /** A plain read: it decides nothing, but says where an attempt may succeed. */
  counters(resources: readonly string[]): string {
    return `SELECT HEX(resource) AS resource, CAST(token AS CHAR) AS token, IF(${IS_FREE}, 'free', 'held') AS state
FROM ${this.#table} WHERE resource IN (${names(resources)})`
  }

  release({ resources, owner }: Pick<LeaseRef, 'resources' | 'owner'>): string {
    return `UPDATE ${this.#table} SET owner = NULL, expires_at = ${NOW}
WHERE resource IN (${names(resources)}) AND owner = ${bytes(owner)} AND ${IS_LIVE} ORDER BY resource`
  }

  handOver(lease: LeaseRef, next: Take): string {
    return `UPDATE ${this.#table} SET token = token + 1, owner = ${bytes(next.owner)}, acquired_at = ${NOW}, expires_at = ${until(next.ttlMs)}
WHERE resource IN (${names(lease.resources)}) AND owner = ${bytes(lease.owner)} AND token = ${lease.token} AND ${IS_LIVE}
ORDER BY resource`
  }

  page(after: string, resource?: string): string {
    const one = resource === undefined ? '' : ` AND resource = ${bytes(resource)}`
    return `SELECT HEX(resource) AS resource, HEX(owner) AS owner, CAST(token AS CHAR) AS token,
  CAST(CEIL(TIMESTAMPDIFF(MICROSECOND, ${NOW}, expires_at) / 1000) AS CHAR) AS remaining,
  CAST(TIMESTAMPDIFF(MICROSECOND, acquired_at, ${NOW}) DIV 1000 AS CHAR) AS held
FROM ${this.#table} WHERE owner IS NOT NULL AND ${IS_LIVE} AND resource > ${bytes(after)}${one}
ORDER BY resource LIMIT ${PAGE}`
  }

  #areOurs(leases: readonly LeaseRef[]): string {
    const owners = leases.map(({ owner }) => bytes(owner)).join(', ')
    return `resource IN (${names(leases.flatMap(({ resources }) => resources))}) AND owner IN (${owners}) AND ${IS_LIVE}`
  }
}

function bytes(text: string): string {
  return `X'${Buffer.from(text).toString('hex')}'`
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

/** Most leases of a process have the same ttl. */
function untilOf(leases: readonly LeaseRef[]): string {
  const { ttlMs } = leases[0]!
  const others = leases.filter((lease) => lease.ttlMs !== ttlMs)
  if (others.length === 0) return until(ttlMs)
  const cases = others.map((lease) => `WHEN ${bytes(lease.owner)} THEN ${microseconds(lease.ttlMs)}`)
  return `${NOW} + INTERVAL (CASE owner ${cases.join(' ')} ELSE ${microseconds(ttlMs)} END) MICROSECOND`
}

function microseconds(ms: number): number {
  return Math.ceil(ms) * 1000
}

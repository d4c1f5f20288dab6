import type { LeaseRef } from '../../engine.ts'
import { PAGE, type Take } from '../shared/sql/steps.ts'
import { DEFAULT_TABLE, tableParts } from '../shared/sql/table-name.ts'

/**
 * When the statement began, in UTC. Not SYSDATE(), which moves on while it waits for a lock: the earlier
 * time takes nothing that is not over and grants nothing longer than was asked for, and one statement has only one time.
 */
const NOW = 'UTC_TIMESTAMP(6)'
const IS_LIVE = `expires_at > ${NOW}`
/** The counter is above 0, so that this overflows and fails the statement, in every sql_mode. */
const FAIL = '9223372036854775807 + token'

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
  owner VARBINARY(1024) NULL,
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
    return `SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${NOW}) AS CHAR) AS clock, IF(@@autocommit, 'on', 'off') AS autocommit,
  HEX(l.resource) AS resource, HEX(l.owner) AS owner, CAST(l.token AS CHAR) AS token,
  CAST(CEIL(TIMESTAMPDIFF(MICROSECOND, ${NOW}, l.expires_at) / 1000) AS CHAR) AS remaining
FROM (SELECT 1) AS one LEFT JOIN ${this.#table} AS l ON l.resource IN (${names(resources)})
ORDER BY l.resource FOR UPDATE`
  }

  /** One row that is not free fails the statement, and all rows are as they were. */
  take({ resources, owner, ttlMs, token }: Take & { token: bigint }): string {
    const rows = sorted(resources).map((name) => `(${name}, ${token}, ${bytes(owner)}, ${NOW}, ${until(ttlMs)})`)
    return `INSERT INTO ${this.#table} (resource, token, owner, acquired_at, expires_at) VALUES ${rows.join(', ')}
ON DUPLICATE KEY UPDATE
  token = IF(token < VALUES(token) AND (owner IS NULL OR NOT ${IS_LIVE}), VALUES(token), ${FAIL}),
  owner = VALUES(owner), acquired_at = VALUES(acquired_at), expires_at = VALUES(expires_at)`
  }

  /**
   * An owner never has other resources than those it asked for, so the two lists name no pair that was not meant. Rows are
   * locked in the order of their names, by every statement that locks several.
   */
  extend(leases: readonly LeaseRef[], ttlMs: number): string {
    return `UPDATE ${this.#table} SET expires_at = ${until(ttlMs)} WHERE ${this.#areOurs(leases)} ORDER BY resource`
  }

  held(leases: readonly LeaseRef[]): string {
    return `SELECT HEX(resource) AS resource, HEX(owner) AS owner FROM ${this.#table} WHERE ${this.#areOurs(leases)}
ORDER BY resource FOR UPDATE`
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
  return `${NOW} + INTERVAL ${Math.ceil(ttlMs) * 1000} MICROSECOND`
}

import type { Clock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import { clockFindings } from '../sql/clock-findings.ts'
import { inTime } from '../sql/in-time.ts'
import type { PostgresClient } from './client.ts'
import { quoted, postgresSchema } from './statements.ts'
import type { Wakeups } from './wakeups.ts'

export interface DoctorPlan {
  readonly query: PostgresClient['query']
  readonly clock: Clock
  readonly ttlMs: number
  readonly driftMs: number
  readonly table: string
  readonly createTable: boolean
  readonly listen: boolean
  /** Undefined where the client can't listen, or shall not. */
  readonly wakeups: Wakeups | undefined
  readonly isSession: boolean
}

type Facts = Readonly<Record<string, string | null>>

/** A doctor who waits longer than this has found something. */
const TIMEOUT_MS = 5000
/** MATERIALIZED in a WITH. */
const OLDEST = 120_000
const COLUMNS = ['resource', 'token', 'owner', 'session', 'acquired_at', 'expires_at', 'awaited']

const FACTS = `SELECT current_setting('server_version') AS version, current_setting('server_version_num') AS number,
  pg_is_in_recovery()::text AS replica, current_setting('fsync') AS fsync,
  current_setting('full_page_writes') AS pages, current_setting('synchronous_commit') AS sync,
  current_setting('synchronous_standby_names') AS standbys, current_setting('default_transaction_isolation') AS isolation,
  current_setting('default_transaction_read_only') AS readonly,
  coalesce(current_setting('idle_session_timeout', true), '0') AS idle,
  current_setting('tcp_keepalives_idle') AS keepalive,
  (SELECT count(*) FROM pg_stat_replication)::text AS replicas,
  has_schema_privilege(coalesce($2::text, current_schema()), 'CREATE')::text AS may_create,
  c.relpersistence::text AS persistence,
  (SELECT string_agg(attname, ',') FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS columns,
  has_table_privilege(c.oid, 'SELECT')::text AS may_select, has_table_privilege(c.oid, 'INSERT')::text AS may_insert,
  has_table_privilege(c.oid, 'UPDATE')::text AS may_update
FROM (SELECT to_regclass($1::text)::oid AS oid) AS t LEFT JOIN pg_class AS c ON c.oid = t.oid`

/** Is this server fit to hold leases, as far as a client can see? */
export async function checkPostgres(given: DoctorPlan): Promise<readonly Finding[]> {
  const { clock } = given
  const query: DoctorPlan['query'] = (text, params) => inTime(clock, given.query(text, params), TIMEOUT_MS)
  const plan = { ...given, query }
  let facts: Facts
  try {
    const schema = plan.table.includes('.') ? plan.table.split('.')[0]! : null
    facts = (await plan.query(FACTS, [quoted(plan.table), schema]))[0] ?? {}
  } catch (error) {
    return [unreachable(error)]
  }
  const findings = [version(facts), role(facts), ...durability(facts), table(plan, facts), isolation(facts)]
  if (plan.isSession) findings.push(session(facts))
  findings.push(await listening(plan))
  const clocks = await clockFindings('postgres', { ...plan, read: () => serverMs(plan) }).catch((error: unknown) => [
    unreachable(error),
  ])
  return [...findings.flat(), ...clocks]
}

async function serverMs({ query }: DoctorPlan): Promise<number> {
  const [row] = await query('SELECT (extract(epoch FROM clock_timestamp()) * 1000)::text AS ms', [])
  return Number(row?.['ms'])
}

function unreachable(error: unknown): Finding {
  return {
    id: 'postgres/reachable',
    severity: 'critical',
    found: error instanceof Error ? error.message : String(error),
    meaning: 'no lease can be had',
    remedy: 'see to the connection, the role and its permissions',
  }
}

function version(facts: Facts): Finding {
  const isOld = Number(facts['number']) < OLDEST
  return {
    id: 'postgres/version',
    severity: isOld ? 'critical' : 'ok',
    found: `PostgreSQL ${facts['version']}`,
    meaning: isOld ? 'the statements need PostgreSQL 12' : 'new enough',
    ...(isOld ? { remedy: 'upgrade the server' } : {}),
  }
}

function role(facts: Facts): Finding {
  const id = 'postgres/writable'
  if (facts['replica'] === 'true') {
    return {
      id,
      severity: 'critical',
      found: 'this server is a replica (pg_is_in_recovery)',
      meaning: 'it can grant nothing, and what it shows may be old',
      remedy: 'connect to the primary: target_session_attrs=read-write, or the address that follows it',
    }
  }
  if (facts['readonly'] === 'on') {
    return {
      id,
      severity: 'critical',
      found: 'default_transaction_read_only is on',
      meaning: 'no lease can be written',
      remedy: 'turn it off for the role that locks: ALTER ROLE … SET default_transaction_read_only = off',
    }
  }
  return { id, severity: 'ok', found: 'a primary that takes writes', meaning: 'leases can be granted' }
}

function durability(facts: Facts): Finding[] {
  const findings: Finding[] = []
  if (facts['fsync'] === 'off' || facts['pages'] === 'off') {
    findings.push({
      id: 'postgres/fsync',
      severity: 'critical',
      found: `fsync is ${facts['fsync']}, full_page_writes is ${facts['pages']}`,
      meaning: 'a crash of the machine may take leases, counters or the whole table with it: two holders',
      remedy: 'turn both on',
    })
  }
  if (facts['sync'] === 'off') {
    findings.push({
      id: 'postgres/synchronous-commit',
      severity: 'warning',
      found: 'synchronous_commit is off',
      meaning: 'a crash of the server forgets the grants of its last moments: a second holder, with a greater token',
      remedy: 'ALTER ROLE … SET synchronous_commit = on for the role that locks',
    })
  }
  if (findings.length === 0) {
    const meaning = 'a granted lease outlives a crash of the server'
    findings.push({
      id: 'postgres/durability',
      severity: 'ok',
      found: `synchronous_commit is ${facts['sync']}`,
      meaning,
    })
  }
  if (Number(facts['replicas']) > 0 && facts['standbys'] === '') {
    findings.push({
      id: 'postgres/failover',
      severity: 'warning',
      found: `${facts['replicas']} replicas, none of them synchronous`,
      meaning: 'a failover may forget the last grants: a second holder, with a greater token if the clocks agree',
      remedy: 'set synchronous_standby_names, or let the protected store check tokens',
    })
  }
  return findings
}

function table({ table, createTable }: DoctorPlan, facts: Facts): Finding {
  const id = 'postgres/table'
  const name = quoted(table)
  if (facts['persistence'] === null) {
    const can = createTable && facts['may_create'] === 'true'
    return {
      id,
      severity: can ? 'note' : 'critical',
      found: `there is no table ${name}`,
      meaning: can
        ? 'it is created at the first use'
        : 'no lease can be had, and this role or these options do not create it',
      remedy: `create it with engine.init() or by hand:\n${postgresSchema(table)}`,
    }
  }
  if (facts['persistence'] !== 'p') {
    return {
      id,
      severity: 'critical',
      found: `the table ${name} is ${facts['persistence'] === 'u' ? 'unlogged' : 'temporary'}`,
      meaning: 'it is emptied by a crash of the server: two holders; and replicas do not have it',
      remedy: `ALTER TABLE ${name} SET LOGGED`,
    }
  }
  const columns = (facts['columns'] ?? '').split(',')
  const lacking = COLUMNS.filter((column) => !columns.includes(column))
  if (lacking.length > 0) {
    return {
      id,
      severity: 'critical',
      found: `the table ${name} has no column ${lacking.join(', ')}`,
      meaning: 'it is some other table, or one of another version',
      remedy: 'name another one with the option table',
    }
  }
  const forbidden = ['select', 'insert', 'update'].filter((right) => facts[`may_${right}`] !== 'true')
  if (forbidden.length > 0) {
    return {
      id,
      severity: 'critical',
      found: `this role may not ${forbidden.join(', ')} on ${name}`,
      meaning: 'no lease can be had',
      remedy: `GRANT SELECT, INSERT, UPDATE ON ${name} TO …`,
    }
  }
  return { id, severity: 'ok', found: `the table ${name}`, meaning: 'it is there, logged, and may be used' }
}

function isolation(facts: Facts): Finding {
  const isUsual = facts['isolation'] === 'read committed'
  return {
    id: 'postgres/isolation',
    severity: isUsual ? 'ok' : 'note',
    found: `default_transaction_isolation is ${facts['isolation']}`,
    meaning: isUsual
      ? 'statements that meet wait for each other'
      : 'statements that meet fail and are run again: correct, but slower under contention',
    ...(isUsual ? {} : { remedy: 'set read committed for the role that locks' }),
  }
}

function session(facts: Facts): Finding {
  const id = 'postgres/session'
  if (facts['idle'] !== '0') {
    return {
      id,
      severity: 'warning',
      found: `idle_session_timeout is ${facts['idle']}`,
      meaning: 'the connection that leases are bound to is ended when nothing is renewed for so long',
      remedy: 'ALTER ROLE … SET idle_session_timeout = 0 for the role that locks',
    }
  }
  return {
    id,
    severity: 'ok',
    found: `this connection is ours alone; tcp_keepalives_idle is ${facts['keepalive']} s`,
    meaning: 'a process that dies frees its leases at once; one whose machine vanishes, by their ttl',
  }
}

async function listening({ wakeups, listen }: DoctorPlan): Promise<Finding> {
  const id = 'postgres/wake-ups'
  if (wakeups === undefined) {
    return {
      id,
      severity: 'note',
      found: listen ? 'this client can not listen' : 'the option listen is false',
      meaning: 'waiters poll, with pauses of up to a second',
      ...(listen ? { remedy: 'use a Pool or Client of pg, sql of postgres.js or a PGlite' } : {}),
    }
  }
  if (await wakeups.prove()) {
    return { id, severity: 'ok', found: 'we hear our own NOTIFY', meaning: 'waiters are woken by a release' }
  }
  return {
    id,
    severity: 'note',
    found: 'LISTEN was answered, or refused, and our own NOTIFY was not heard',
    meaning: 'a transaction pooler is in front of the server, or no further connection can be had: waiters poll',
    remedy: 'connect to the server itself, or to a pooler in session mode',
  }
}

import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { Finding } from '../../engine.ts'
import { messageOf } from '../../errors.ts'
import { findings, sentence } from '../shared/findings.ts'
import { clockFindings, wrongTable } from '../shared/sql/findings.ts'
import { inTime } from '../shared/in-time.ts'
import type { SqlQuery, SqlRow } from '../shared/sql/client.ts'
import { POSTGRES_COLUMNS, postgresChange, postgresSchema, quoted } from './statements.ts'
import type { PostgresWakeups } from './wakeups.ts'

export interface PostgresDoctorPlan {
  readonly query: SqlQuery
  readonly clock: Clock
  readonly ttlMs: number
  readonly driftMs: number
  readonly table: string
  readonly createTable: boolean
  readonly listen: boolean
  /** Undefined where the client cannot listen, or the options say that it should not. */
  readonly wakeups: PostgresWakeups | undefined
  readonly isSession: boolean
}

/** A statement that takes longer has failed. */
const TIMEOUT_MS = 5000
/** The first version that has MATERIALIZED in a WITH. */
const OLDEST = 120_000

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

const report = findings('postgres')

/** Is this server fit to hold leases, as far as a client can see? */
export async function checkPostgres(given: PostgresDoctorPlan): Promise<readonly Finding[]> {
  const deadlines = new Deadlines(given.clock)
  const query: SqlQuery = (text, params) => inTime(given.query(text, params), deadlines, TIMEOUT_MS)
  try {
    return await check({ ...given, query })
  } finally {
    deadlines.close()
  }
}

async function check(plan: PostgresDoctorPlan): Promise<readonly Finding[]> {
  let facts: SqlRow
  try {
    const schema = plan.table.includes('.') ? plan.table.split('.')[0]! : null
    facts = (await plan.query(FACTS, [quoted(plan.table), schema]))[0] ?? {}
  } catch (error) {
    return [unusable(error)]
  }
  return [
    version(facts),
    role(facts),
    ...durability(facts),
    table(plan, facts),
    isolation(facts),
    ...(plan.isSession ? [session(facts)] : []),
    await listening(plan),
    ...(await clockFindings('postgres', { ...plan, read: () => serverMs(plan) }).catch((error: unknown) => [
      unusable(error),
    ])),
  ]
}

async function serverMs({ query }: PostgresDoctorPlan): Promise<number> {
  const [row] = await query('SELECT (extract(epoch FROM clock_timestamp()) * 1000)::text AS ms', [])
  return Number(row?.['ms'])
}

function unusable(error: unknown): Finding {
  return report.critical(
    'reachable',
    sentence(`A statement failed: ${messageOf(error)}`),
    'No lease can be granted or renewed.',
    'Check the connection, the role and its permissions.',
  )
}

function version(facts: SqlRow): Finding {
  const found = `The server is PostgreSQL ${facts['version']}.`
  if (Number(facts['number']) >= OLDEST)
    return report.ok('version', found, 'The engine is tested on PostgreSQL 13 to 18.')
  return report.critical('version', found, 'The statements need PostgreSQL 12 or newer.', 'Upgrade the server.')
}

function role(facts: SqlRow): Finding {
  if (facts['replica'] === 'true') {
    return report.critical(
      'writable',
      'This server is a replica (pg_is_in_recovery).',
      'It cannot grant leases, and the leases that it shows may be out of date.',
      'Connect to the primary: use target_session_attrs=read-write, or the address that follows the primary.',
    )
  }
  if (facts['readonly'] === 'on') {
    return report.critical(
      'writable',
      'The setting default_transaction_read_only is on.',
      'No lease can be written.',
      'Turn it off for the role that locks: ALTER ROLE … SET default_transaction_read_only = off.',
    )
  }
  return report.ok('writable', 'This server is a primary that accepts writes.', 'It can grant leases.')
}

function durability(facts: SqlRow): Finding[] {
  const list: Finding[] = []
  if (facts['fsync'] === 'off' || facts['pages'] === 'off') {
    list.push(
      report.critical(
        'fsync',
        `The setting fsync is ${facts['fsync']}, and full_page_writes is ${facts['pages']}.`,
        'A crash of the machine may lose leases, counters or the whole table: two holders.',
        'Turn both on.',
      ),
    )
  }
  if (facts['sync'] === 'off') {
    list.push(
      report.warning(
        'synchronous-commit',
        'The setting synchronous_commit is off.',
        'A crash of the server loses the grants of its last moments: a second holder, with a greater token.',
        'Run ALTER ROLE … SET synchronous_commit = on for the role that locks.',
      ),
    )
  }
  if (list.length === 0) {
    const found = `The setting synchronous_commit is ${facts['sync']}.`
    list.push(report.ok('durability', found, 'A granted lease survives a crash of the server.'))
  }
  if (Number(facts['replicas']) > 0 && facts['standbys'] === '') {
    const one = 'The server has 1 replica, which is not synchronous.'
    list.push(
      report.warning(
        'failover',
        facts['replicas'] === '1' ? one : `The server has ${facts['replicas']} replicas, none of them synchronous.`,
        'A failover may lose the last grants: a second holder, with a greater token if the clocks agree.',
        'Set synchronous_standby_names, or let the protected store check tokens.',
      ),
    )
  }
  return list
}

function table({ table, createTable }: PostgresDoctorPlan, facts: SqlRow): Finding {
  const name = quoted(table)
  if (facts['persistence'] === null) {
    const found = `There is no table ${name}.`
    const remedy = `Create it with \`ringfence init\` or engine.init(), or by hand:\n${postgresSchema(table)}`
    if (createTable && facts['may_create'] === 'true') {
      return report.note('table', found, 'The engine creates it at the first use.', remedy)
    }
    return report.critical(
      'table',
      found,
      'No lease can be granted: this role or the options do not create it.',
      remedy,
    )
  }
  if (facts['persistence'] !== 'p') {
    return report.critical(
      'table',
      `The table ${name} is ${facts['persistence'] === 'u' ? 'unlogged' : 'temporary'}.`,
      'A crash of the server empties it: two holders. Replicas do not have it.',
      `Run ALTER TABLE ${name} SET LOGGED.`,
    )
  }
  const wrong = wrongTable(report, name, facts['columns'], POSTGRES_COLUMNS, postgresChange(table))
  if (wrong !== undefined) return wrong
  const forbidden = ['select', 'insert', 'update'].filter((right) => facts[`may_${right}`] !== 'true')
  if (forbidden.length > 0) {
    return report.critical(
      'table',
      `This role lacks a permission on ${name}: ${forbidden.join(', ')}.`,
      'No lease can be granted.',
      `Run GRANT SELECT, INSERT, UPDATE ON ${name} TO ….`,
    )
  }
  return report.ok('table', `The table ${name} is there.`, 'It is logged, and this role may use it.')
}

function isolation(facts: SqlRow): Finding {
  const found = `The setting default_transaction_isolation is ${facts['isolation']}.`
  if (facts['isolation'] === 'read committed') {
    return report.ok('isolation', found, 'Statements that collide wait for each other.')
  }
  const meaning = 'Statements that collide fail and run again: correct, but slower under contention.'
  return report.note('isolation', found, meaning, 'Set read committed for the role that locks.')
}

function session(facts: SqlRow): Finding {
  if (facts['idle'] !== '0') {
    return report.warning(
      'session',
      `The setting idle_session_timeout is ${facts['idle']}.`,
      'The server ends the connection that leases are bound to when nothing is renewed for that long.',
      'Run ALTER ROLE … SET idle_session_timeout = 0 for the role that locks.',
    )
  }
  return report.ok(
    'session',
    `This connection is ours alone; tcp_keepalives_idle is ${facts['keepalive']} s.`,
    'The leases of a process that dies end at once; those of a machine that vanishes end by their ttl.',
  )
}

async function listening({ wakeups, listen }: PostgresDoctorPlan): Promise<Finding> {
  const poll = 'Waiters poll, with pauses of up to a second.'
  if (!listen) return report.note('wake-ups', 'The option listen is false.', poll)
  if (wakeups === undefined) {
    const remedy = 'Use a Pool or Client of pg, the sql of postgres.js or a PGlite.'
    return report.note('wake-ups', 'This client cannot listen.', poll, remedy)
  }
  if (await wakeups.prove()) {
    return report.ok('wake-ups', 'Our own NOTIFY arrived.', 'A release wakes waiters.')
  }
  return report.note(
    'wake-ups',
    'Our own NOTIFY did not arrive, or LISTEN was refused.',
    'A transaction pooler is in front of the server, or there is no connection left for listening: waiters poll.',
    'Connect to the server itself, or to a pooler in session mode.',
  )
}

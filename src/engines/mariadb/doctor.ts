import type { Clock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import { clockFindings } from '../sql/clock-findings.ts'
import { inTime } from '../sql/in-time.ts'
import { tableParts } from '../sql/table-name.ts'
import type { Run } from './client.ts'
import { mariadbSchema, quoted } from './statements.ts'

export interface DoctorPlan {
  readonly run: Run
  readonly clock: Clock
  readonly ttlMs: number
  readonly driftMs: number
  readonly table: string
  readonly createTable: boolean
}

type Settings = ReadonlyMap<string, string>

/** A doctor who waits longer than this has found something. */
const TIMEOUT_MS = 5000
const COLUMNS = ['resource', 'token', 'owner', 'acquired_at', 'expires_at']
const SETTINGS = [
  'autocommit',
  'innodb_flush_log_at_trx_commit',
  'innodb_read_only',
  'read_only',
  'super_read_only',
  'sql_mode',
  'transaction_isolation',
  'tx_isolation',
  'version',
  'wsrep_on',
]

/** Is this server fit to hold leases, as far as a client can see? */
export async function checkMariadb(given: DoctorPlan): Promise<readonly Finding[]> {
  const run: Run = (sql) => inTime(given.clock, given.run(sql), TIMEOUT_MS)
  const plan = { ...given, run }
  try {
    const settings = await settingsOf(run)
    return [
      version(settings),
      writable(settings),
      autocommit(settings),
      flushing(settings),
      await table(plan),
      ...galera(settings),
      isolation(settings),
      sqlMode(settings),
      ...(await clockFindings('mariadb', { ...plan, read: () => serverMs(run) })),
    ]
  } catch (error) {
    return [unreachable(error)]
  }
}

async function settingsOf(run: Run): Promise<Settings> {
  const list = SETTINGS.map((name) => `'${name}'`).join(', ')
  const { rows } = await run(`SHOW VARIABLES WHERE Variable_name IN (${list})`)
  return new Map(rows.map((row) => [row['Variable_name'] ?? '', row['Value'] ?? '']))
}

async function serverMs(run: Run): Promise<number> {
  const { rows } = await run(`SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR) AS us`)
  return Number(rows[0]?.['us']) / 1000
}

function unreachable(error: unknown): Finding {
  return {
    id: 'mariadb/reachable',
    severity: 'critical',
    found: error instanceof Error ? error.message : String(error),
    meaning: 'no lease can be had',
    remedy: 'see to the connection, the account and its permissions',
  }
}

function version(settings: Settings): Finding {
  const found = settings.get('version') ?? 'of unknown version'
  return {
    id: 'mariadb/version',
    severity: 'ok',
    found: /mariadb/i.test(found) ? found : `MySQL ${found}`,
    meaning: 'the statements are ones that MariaDB and MySQL share',
  }
}

function writable(settings: Settings): Finding {
  const id = 'mariadb/writable'
  const readOnly = ['read_only', 'super_read_only', 'innodb_read_only'].filter((name) => settings.get(name) === 'ON')
  if (readOnly.length === 0) return { id, severity: 'ok', found: 'it takes writes', meaning: 'leases can be granted' }
  return {
    id,
    severity: 'critical',
    found: `${readOnly.join(', ')} is on`,
    meaning:
      'this is a replica: it grants nothing, or, to an account that may write all the same, what the primary also grants',
    remedy: 'connect to the primary',
  }
}

function autocommit(settings: Settings): Finding {
  const isOn = settings.get('autocommit') === 'ON'
  return {
    id: 'mariadb/autocommit',
    severity: isOn ? 'ok' : 'critical',
    found: `autocommit is ${isOn ? 'on' : 'off'}`,
    meaning: isOn
      ? 'every statement takes effect by itself'
      : 'a lease would never be seen by others, so none is granted',
    ...(isOn ? {} : { remedy: 'turn autocommit on for these connections' }),
  }
}

function flushing(settings: Settings): Finding {
  const value = settings.get('innodb_flush_log_at_trx_commit')
  const isDurable = value === '1' || value === '3'
  return {
    id: 'mariadb/flush-log',
    severity: isDurable ? 'ok' : 'warning',
    found: `innodb_flush_log_at_trx_commit is ${value}`,
    meaning: isDurable
      ? 'a granted lease outlives a crash of the server'
      : `a crash of the ${value === '0' ? 'server' : 'machine'} forgets the grants of the last second: a second holder, with a greater token`,
    ...(isDurable ? {} : { remedy: 'set innodb_flush_log_at_trx_commit = 1' }),
  }
}

async function table({ run, table, createTable }: DoctorPlan): Promise<Finding> {
  const id = 'mariadb/table'
  const parts = tableParts(table)
  const schema = parts.length === 2 ? `'${parts[0]}'` : 'DATABASE()'
  const where = `table_schema = ${schema} AND table_name = '${parts.at(-1)}'`
  const { rows } = await run(
    `SELECT t.engine AS engine, CAST(c.columns AS CHAR) AS columns FROM information_schema.tables AS t,
  (SELECT GROUP_CONCAT(column_name) AS columns FROM information_schema.columns WHERE ${where}) AS c WHERE ${where}`,
  )
  const name = quoted(table)
  const [row] = rows
  if (row === undefined) {
    return {
      id,
      severity: createTable ? 'note' : 'critical',
      found: `there is no table ${name}, or this account may not see it`,
      meaning: createTable
        ? 'it is created at the first use'
        : 'no lease can be had, and these options do not create it',
      remedy: `create it with engine.init() or by hand:\n${mariadbSchema(table)}`,
    }
  }
  if (row['engine']?.toLowerCase() !== 'innodb') {
    return {
      id,
      severity: 'critical',
      found: `the table ${name} is of the engine ${row['engine']}`,
      meaning: 'statements on it are not atomic and not durable: two holders, and half-taken leases',
      remedy: `ALTER TABLE ${name} ENGINE = InnoDB`,
    }
  }
  const columns = (row['columns'] ?? '').toLowerCase().split(',')
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
  return { id, severity: 'ok', found: `the table ${name}`, meaning: 'it is there, of the engine InnoDB' }
}

function galera(settings: Settings): Finding[] {
  if (settings.get('wsrep_on') !== 'ON') return []
  return [
    {
      id: 'mariadb/galera',
      severity: 'warning',
      found: 'this is a node of a Galera cluster',
      meaning: 'each node counts by its own clock; and a crash of all nodes may forget grants that were answered',
      remedy: 'send all locking to one node, and keep the clocks together by NTP',
    },
  ]
}

function isolation(settings: Settings): Finding {
  const level = settings.get('transaction_isolation') ?? settings.get('tx_isolation') ?? 'unknown'
  const isSerial = level === 'SERIALIZABLE'
  return {
    id: 'mariadb/isolation',
    severity: isSerial ? 'note' : 'ok',
    found: `the isolation level is ${level}`,
    meaning: isSerial ? 'looking at a lease waits for whoever changes it' : 'single statements do not depend on it',
  }
}

function sqlMode(settings: Settings): Finding {
  const mode = settings.get('sql_mode') ?? ''
  const isStrict = /STRICT_(TRANS|ALL)_TABLES/.test(mode)
  return {
    id: 'mariadb/sql-mode',
    severity: isStrict ? 'ok' : 'note',
    found: `sql_mode is '${mode}'`,
    meaning: isStrict
      ? 'values that do not fit are refused'
      : 'values that do not fit are cut off silently; those of leases always fit, those of what you protect may not',
  }
}

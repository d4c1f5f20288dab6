import type { Clock } from '../../clock.ts'
import { Deadlines } from '../../deadlines.ts'
import type { Finding } from '../../engine.ts'
import { messageOf } from '../../errors.ts'
import { findings, sentence } from '../shared/findings.ts'
import { clockFindings, wrongTable } from '../shared/sql/findings.ts'
import { inTime } from '../shared/in-time.ts'
import { tableParts } from '../shared/sql/table-name.ts'
import type { RunMariadb } from './client.ts'
import { MARIADB_COLUMNS, mariadbChange, mariadbSchema, quoted } from './statements.ts'

export interface MariadbDoctorPlan {
  readonly run: RunMariadb
  readonly clock: Clock
  readonly ttlMs: number
  readonly driftMs: number
  readonly table: string
  readonly createTable: boolean
}

type ServerSettings = ReadonlyMap<string, string>

/** A statement that takes longer has failed. */
const TIMEOUT_MS = 5000
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

const report = findings('mariadb')

/** Is this server fit to hold leases, as far as a client can see? */
export async function checkMariadb(given: MariadbDoctorPlan): Promise<readonly Finding[]> {
  const deadlines = new Deadlines(given.clock)
  const run: RunMariadb = (sql) => inTime(given.run(sql), deadlines, TIMEOUT_MS)
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
    return [
      report.critical(
        'reachable',
        sentence(`A statement failed: ${messageOf(error)}`),
        'No lease can be granted or renewed.',
        'Check the connection, the account and its permissions.',
      ),
    ]
  } finally {
    deadlines.close()
  }
}

async function settingsOf(run: RunMariadb): Promise<ServerSettings> {
  const list = SETTINGS.map((name) => `'${name}'`).join(', ')
  const { rows } = await run(`SHOW VARIABLES WHERE Variable_name IN (${list})`)
  return new Map(rows.map((row) => [row['Variable_name'] ?? '', row['Value'] ?? '']))
}

async function serverMs(run: RunMariadb): Promise<number> {
  const { rows } = await run(`SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR) AS us`)
  return Number(rows[0]?.['us']) / 1000
}

function version(settings: ServerSettings): Finding {
  const value = settings.get('version') ?? 'of unknown version'
  const found = `The server is ${/mariadb/i.test(value) ? '' : 'MySQL '}${value}.`
  return report.ok('version', found, 'The engine is tested on MariaDB 10.11 and 11 and on MySQL 9.')
}

function writable(settings: ServerSettings): Finding {
  const readOnly = ['read_only', 'super_read_only', 'innodb_read_only'].filter((name) => settings.get(name) === 'ON')
  if (readOnly.length === 0) return report.ok('writable', 'The server accepts writes.', 'It can grant leases.')
  return report.critical(
    'writable',
    `The server is read-only: ${readOnly.join(', ')} is on.`,
    'This is a replica: it cannot grant leases. To an account that may still write, it grants what the primary also grants.',
    'Connect to the primary.',
  )
}

function autocommit(settings: ServerSettings): Finding {
  if (settings.get('autocommit') === 'ON') {
    return report.ok('autocommit', 'The setting autocommit is on.', 'Every statement takes effect by itself.')
  }
  return report.critical(
    'autocommit',
    'The setting autocommit is off.',
    'Other processes would never see a lease, so none is granted.',
    'Turn autocommit on for these connections.',
  )
}

function flushing(settings: ServerSettings): Finding {
  const value = settings.get('innodb_flush_log_at_trx_commit')
  const found = `The setting innodb_flush_log_at_trx_commit is ${value}.`
  if (value === '1' || value === '3') {
    return report.ok('flush-log', found, 'A granted lease survives a crash of the server.')
  }
  const crash = `A crash of the ${value === '0' ? 'server' : 'machine'} loses the grants of the last second`
  const meaning = `${crash}: a second holder, with a greater token.`
  return report.warning('flush-log', found, meaning, 'Set innodb_flush_log_at_trx_commit = 1.')
}

async function table({ run, table, createTable }: MariadbDoctorPlan): Promise<Finding> {
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
    const found = `There is no table ${name}, or this account may not see it.`
    const remedy = `Create it with \`ringfence init\` or engine.init(), or by hand:\n${mariadbSchema(table)}`
    if (createTable) return report.note('table', found, 'The engine creates it at the first use.', remedy)
    return report.critical('table', found, 'No lease can be granted: the options do not create it.', remedy)
  }
  if (row['engine']?.toLowerCase() !== 'innodb') {
    return report.critical(
      'table',
      `The table ${name} has the engine ${row['engine']}.`,
      'Statements on it are neither atomic nor durable: two holders, and leases that are taken in part.',
      `Run ALTER TABLE ${name} ENGINE = InnoDB.`,
    )
  }
  const wrong = wrongTable(report, name, row['columns'], MARIADB_COLUMNS, mariadbChange(table))
  if (wrong !== undefined) return wrong
  return report.ok('table', `The table ${name} is there.`, 'Its engine is InnoDB.')
}

function galera(settings: ServerSettings): Finding[] {
  if (settings.get('wsrep_on') !== 'ON') return []
  return [
    report.warning(
      'galera',
      'This server is a member of a Galera cluster.',
      'Each member counts by its own clock, and a crash of all members may lose grants that were answered.',
      'Send all locking to one member, and keep the clocks together by NTP.',
    ),
  ]
}

function isolation(settings: ServerSettings): Finding {
  const level = settings.get('transaction_isolation') ?? settings.get('tx_isolation') ?? 'unknown'
  const found = `The isolation level is ${level}.`
  if (level === 'SERIALIZABLE') {
    return report.note('isolation', found, 'A read of a lease waits for a transaction that changes it.')
  }
  return report.ok('isolation', found, 'Single statements do not depend on it.')
}

function sqlMode(settings: ServerSettings): Finding {
  const mode = settings.get('sql_mode') ?? ''
  const found = `The setting sql_mode is '${mode}'.`
  if (/STRICT_(TRANS|ALL)_TABLES/.test(mode)) {
    return report.ok('sql-mode', found, 'The server refuses values that do not fit.')
  }
  const meaning =
    'The server silently cuts off values that do not fit. Those of leases always fit; your own data may not.'
  return report.note('sql-mode', found, meaning)
}

import { createPool as createMariadbPool } from 'mariadb'
import { createPool as createMysql2Pool } from 'mysql2/promise'
import { isRaced } from '../../src/engines/mariadb/errors.ts'
import { mariadb, type MariadbLike } from '../../src/engines/mariadb/index.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { ServerError, type Reply } from '../../sim/redis.ts'
import { NOT_UNDONE, type Courier, type Request } from '../courier.ts'
import type { Target } from '../target.ts'
import { ownersIn, seenBy, unused, wordsOf } from '../words.ts'

const REQUEST_TIMEOUT_MS = 400
/** Any time; it is the same in every schedule. */
const WALL_MS = 1_700_000_000_000
const LEFT = `SELECT CAST(resource AS CHAR) AS resource, CAST(owner AS CHAR) AS owner,
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) / 1000 AS leftMs
FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)`

/** Leases in MariaDB by mysql2 and by mariadb; each statement is told its time. */
export async function mariadbTarget(): Promise<Target> {
  const server = await startMariadb({ settings: { 'innodb-flush-log-at-trx-commit': '0' } })
  const { host, port, user, database } = server
  const mysql2 = createMysql2Pool({ host, port, user, database, connectionLimit: 8 })
  const pool = createMariadbPool({ host, port, user, database, connectionLimit: 4 })
  let nowMs = WALL_MS
  // Its threads cannot do with a clock that stands still: InnoDB takes the process for stuck. A statement can.
  const inTime = async (of: Connections, sql: string): Promise<unknown> => {
    const connection = await of.getConnection()
    try {
      await connection.query(`SET timestamp = ${(nowMs / 1000).toFixed(6)}`)
      return await connection.query(sql)
    } finally {
      await connection.release()
    }
  }
  const maker = mariadb(mysql2)
  await maker.init!()
  await maker.close()
  return {
    name: 'mariadb',
    wrong: { ...seenBy(CHANGES), ...NOT_UNDONE },
    bounds: { ttlMs: [400, 2000], shared: true, repeats: false },
    lateMs: 3 * REQUEST_TIMEOUT_MS,
    async begin() {
      await mysql2.query('DELETE FROM ringfence_leases')
      return WALL_MS
    },
    clock: (wallMs) => void (nowMs = wallMs),
    open({ courier, process, driver, wrong }) {
      const isMysql2 = driver < 0.7
      const run = (sql: string): Promise<unknown> => inTime(isMysql2 ? mysql2 : pool, sql)
      const broken = isMysql2 ? mysql2Broken : mariadbBroken
      const client = carried(courier, { run, broken, wrong })
      return mariadb(client, { clock: process, requestTimeout: REQUEST_TIMEOUT_MS })
    },
    async left() {
      const [rows] = (await inTime(mysql2, LEFT)) as [unknown, unknown]
      return (rows as { resource: string; owner: string; leftMs: string }[]).map((row) => ({
        ...row,
        leftMs: Number(row.leftMs),
      }))
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([mysql2.end(), pool.end()])
      await server.stop()
    },
  }
}

function mysql2Broken(): Error {
  const error = new Error('Connection lost: The server closed the connection.')
  return Object.assign(error, { code: 'PROTOCOL_CONNECTION_LOST', fatal: true })
}

function mariadbBroken(): Error {
  const error = new Error('socket has unexpectedly been closed')
  return Object.assign(error, { code: 'ER_SOCKET_UNEXPECTED_CLOSE', errno: 45_026, sqlState: '08S01', fatal: true })
}

interface Connections {
  getConnection(): Promise<{ query(sql: string): Promise<unknown>; release(): unknown }>
}

interface How {
  readonly run: (sql: string) => Promise<unknown>
  readonly broken: () => Error
  readonly wrong: string | undefined
}

/** A pool whose statements are carried. */
function carried(courier: Courier, { run, broken, wrong }: How): MariadbLike {
  const { find, put } = CHANGES.find(({ name }) => name === wrong) ?? { find: /^$/, put: '' }
  const query = ({ sql }: { sql: string }): Promise<unknown> =>
    courier.carry({ ...inWords(withoutHex(sql)), visit: () => run(sql.replace(find, put)), broken })
  return { query, execute: unused, getConnection: unused } as MariadbLike
}

function withoutHex(text: string): string {
  return text.replaceAll(
    /(?:X'|\.o|'o)((?:[0-9a-f]{2})+)'?/gi,
    (_, hex: string) => ` ${Buffer.from(hex, 'hex').toString()} `,
  )
}

/** A statement by what begins it and by the owners that it names. */
function inWords(text: string): Pick<Request<unknown>, 'words' | 'replies' | 'refusals'> {
  const owners = ownersIn(text)
  const what = kindOf(text)
  const refusals = (error: unknown): readonly Reply[] =>
    owners.map(() => (isRaced(error) ? [0, 'raced'] : new ServerError(String(error))))
  const [owner = '', former = ''] = owners
  const words = what === 'handOver' ? [{ what, owner, former }] : wordsOf(what, owners)
  const isOf = (answer: unknown): boolean => {
    const { rows, affected } = partsOf(answer)
    // A row is as it is now, whatever its owner; without an owner in it, only what was granted is returned.
    if (rows === undefined || what !== 'acquire') return affected > 0
    const shown = JSON.stringify(rows)
    return (
      !shown.includes('"owner"') ||
      shown.toLowerCase().includes(Buffer.from(owner).toString('hex')) ||
      shown.toLowerCase().includes(Buffer.from(Buffer.from(owner).toString('hex')).toString('hex'))
    )
  }
  return { words, replies: (answer) => words.map(() => (isOf(answer) ? 1 : [0])), refusals }
}

/** mysql2 returns an array of the rows, or their number, and the columns. */
function partsOf(answer: unknown): { rows: readonly object[] | undefined; affected: number } {
  const isPair =
    Array.isArray(answer) && answer.length === 2 && (Array.isArray(answer[0]) || 'affectedRows' in answer[0])
  const one: unknown = isPair ? (answer as unknown[])[0] : answer
  if (Array.isArray(one)) return { rows: one as object[], affected: 0 }
  return { rows: undefined, affected: (one as { affectedRows: number }).affectedRows }
}

function kindOf(text: string): string {
  if (text.startsWith('INSERT')) return 'acquire'
  if (text.startsWith('SELECT')) return 'look'
  if (text.includes('SET token = token + 1, owner')) return 'handOver'
  if (/SET owner = (NULL|IF)/.test(text)) return 'release'
  if (/SET (expires_at|readers) = /.test(text)) return 'extend'
  return 'wait'
}

/** Known bugs, as changes of a statement, and what sees them. */
const CHANGES = [
  {
    name: 'a grant that does not look at the holder',
    seenBy: 'exclusion',
    find: /\(owner IS NULL OR NOT expires_at > UTC_TIMESTAMP\(6\)\)/g,
    put: 'TRUE',
  },
  {
    name: 'a renewal for half of the time',
    seenBy: 'exclusion',
    find: /SET expires_at = UTC_TIMESTAMP\(6\) \+ INTERVAL (\d+) MICROSECOND/,
    put: 'SET expires_at = UTC_TIMESTAMP(6) + INTERVAL $1 DIV 2 MICROSECOND',
  },
  {
    name: 'a release that does not ask whose it is',
    seenBy: 'exclusion',
    find: /(SET owner = NULL.*\nWHERE .*) AND owner = X'[0-9a-f]*'/i,
    put: '$1',
  },
]

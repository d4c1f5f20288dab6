import { Pool } from 'pg'
import postgresJs from 'postgres'
import type { Engine } from '../../src/engine.ts'
import { isRaced } from '../../src/engines/postgres/errors.ts'
import { postgres, type PostgresLike } from '../../src/engines/postgres/index.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { ServerError, type Reply } from '../../sim/redis.ts'
import { NOT_UNDONE, type Courier, type Request } from '../courier.ts'
import type { Target } from '../target.ts'
import { ownersIn, seenBy, unused, wordsOf } from '../words.ts'

const REQUEST_TIMEOUT_MS = 400
/** Any time; it is the same in every schedule. */
const WALL_MS = 1_700_000_000_000
export const LEFT = `SELECT resource, owner, extract(epoch FROM expires_at - clock_timestamp()) * 1000 AS left
FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > clock_timestamp()`

/** Leases in PostgreSQL by pg and by postgres.js, on a server whose clock stands still between two requests. */
export async function postgresTarget(): Promise<Target> {
  const server = await startPostgres({ clockShift: true, settings: { autovacuum: 'off', synchronous_commit: 'off' } })
  const pool = new Pool({ connectionString: server.url, max: 8 })
  const sql = postgresJs(server.url, { max: 4, onnotice: () => undefined })
  const maker = postgres(pool)
  await maker.init!()
  await maker.close()
  return {
    name: 'postgres',
    wrong: { ...seenBy(CHANGES), ...NOT_UNDONE },
    bounds: { ttlMs: [400, 2000], shared: true, repeats: false },
    lateMs: 3 * REQUEST_TIMEOUT_MS,
    async begin() {
      await pool.query('TRUNCATE ringfence_leases')
      return WALL_MS
    },
    clock: (wallMs) => server.stopClock(wallMs),
    open({ courier, process, driver, wrong }): Engine {
      const send = sender(courier, wrong)
      const client = driver < 0.7 ? pgBy(send, pool) : postgresJsBy(send, sql)
      return postgres(client, { clock: process, listen: false, requestTimeout: REQUEST_TIMEOUT_MS })
    },
    async left() {
      const { rows } = await pool.query<{ resource: string; owner: string; left: string }>(LEFT)
      return rows.map(({ resource, owner, left }) => ({ resource, owner, leftMs: Number(left) }))
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([pool.end(), sql.end()])
      await server.stop()
    },
  }
}

/** A pool whose statements are carried. */
function pgBy(send: Send, pool: Pool): PostgresLike {
  const query = (text: string, params: unknown[]): Promise<unknown> =>
    send(text, `${text} ${params.join(' ')}`, {
      visit: (statement) => pool.query(statement, params),
      rowsOf: ({ rows }: { rows: object[] }) => rows,
      broken: () => new Error('Connection terminated unexpectedly'),
    })
  return { totalCount: 0, connect: unused, query } as PostgresLike
}

function postgresJsBy(send: Send, sql: postgresJs.Sql): PostgresLike {
  const unsafe = (text: string): Promise<unknown> =>
    send(text, withoutHex(text), {
      visit: async (statement) => sql.unsafe(statement),
      rowsOf: (rows: object[]) => rows,
      broken: () => Object.assign(new Error('write CONNECTION_CLOSED'), { code: 'CONNECTION_CLOSED' }),
    })
  // A function of its own for each client: it is what the methods are put on.
  return Object.assign(() => unused(), { unsafe, begin: unused, listen: unused })
}

function withoutHex(text: string): string {
  return text.replaceAll(/decode\('([0-9a-f]*)', 'hex'\)/g, (_, hex: string) => Buffer.from(hex, 'hex').toString())
}

type Send = <T>(
  statement: string,
  /** With its values in it. */
  text: string,
  how: {
    readonly visit: (statement: string) => Promise<T>
    readonly rowsOf: (answer: T) => readonly object[]
    readonly broken: () => Error
  },
) => Promise<T>

function sender(courier: Courier, wrong: string | undefined): Send {
  return (statement, text, { visit, rowsOf, broken }) =>
    courier.carry({ ...inWords(text, rowsOf), visit: () => visit(changed(statement, wrong)), broken })
}

/** With a known bug in it. */
export function changed(statement: string, wrong: string | undefined): string {
  const { find, put } = CHANGES.find(({ name }) => name === wrong) ?? { find: /^$/, put: '' }
  return statement.replace(find, put)
}

/** A statement by what begins it and by the owners that it names. */
export function inWords<T>(
  text: string,
  rowsOf: (answer: T) => readonly object[],
): Pick<Request<T>, 'words' | 'replies' | 'refusals'> {
  const owners = ownersIn(text)
  const what = kindOf(text)
  const refusals = (error: unknown): readonly Reply[] =>
    owners.map(() => (isRaced(error) ? [0, 'raced'] : new ServerError(String(error))))
  if (what === 'handOver') {
    const [former = '', owner = ''] = owners
    return { words: [{ what, owner, former }], replies: (answer) => [rowsOf(answer).length > 0 ? 1 : [0]], refusals }
  }
  const replies = (answer: T): readonly Reply[] => {
    const rows = rowsOf(answer) as { lease?: string }[]
    if (what === 'acquire') return [rows.length > 0 ? 1 : [0, 'held']]
    if (what === 'extend') return owners.map((_, lease) => (rows.some((row) => Number(row.lease) === lease) ? 1 : [0]))
    return owners.map(() => [rows.length])
  }
  return { words: wordsOf(what, owners), replies, refusals }
}

function kindOf(text: string): string {
  if (/^(INSERT|WITH seen)/.test(text)) return 'acquire'
  if (text.startsWith('SELECT c.us')) return 'look'
  if (text.includes('moved AS')) return 'handOver'
  if (text.includes('freed AS')) return 'release'
  if (text.includes('renewed AS')) return 'extend'
  return 'wait'
}

/** Known bugs, as changes of a statement, and what sees them. */
export const CHANGES = [
  {
    name: 'a grant that does not look at the holder',
    seenBy: 'exclusion',
    find: /\nWHERE l\.owner = excluded\.owner OR .*/,
    put: '',
  },
  {
    name: 'a renewal for half of the time',
    seenBy: 'exclusion',
    find: /w\.ttl \* interval '1 millisecond'/,
    put: "w.ttl * interval '0.5 milliseconds'",
  },
  {
    name: 'a release that does not ask whose it is',
    seenBy: 'exclusion',
    find: / AND owner = (?:\$2|convert_from\(decode\('[0-9a-f]*', 'hex'\), 'UTF8'\))::text ORDER BY resource FOR UPDATE\), freed/,
    put: ' ORDER BY resource FOR UPDATE), freed',
  },
  {
    name: 'a hand-over that keeps the token',
    seenBy: 'tokens',
    find: /token = greatest\(l\.token \+ 1, .*\), owner = (?=\$3|convert_from)/,
    put: 'owner = ',
  },
]

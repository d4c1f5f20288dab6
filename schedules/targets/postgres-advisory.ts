import { EventEmitter } from 'node:events'
import { Client } from 'pg'
import { postgres, postgresAdvisory, type PostgresConnectionLike } from '../../src/engines/postgres/index.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import type { Process } from '../../sim/process.ts'
import type { Connection, Link } from '../connection.ts'
import { NOT_UNDONE, type Courier } from '../courier.ts'
import type { Target } from '../target.ts'
import { seenBy, unused } from '../words.ts'
import { CHANGES, changed, inWords, LEFT } from './postgres.ts'

const REQUEST_TIMEOUT_MS = 400
const WALL_MS = 1_700_000_000_000
/** The engine gives up a connection that is silent for ten seconds. */
const LATE_MS = 10_000 + 3 * REQUEST_TIMEOUT_MS

/** pg refuses a statement of which a change has taken away a value. */
const SEEN = CHANGES.filter(({ name }) => name !== 'a release that does not ask whose it is')

interface Asked {
  readonly statement: string
  readonly params: readonly unknown[]
}

/** The rows, or the error of the server. */
type Answer = { readonly rows: object[] } | { readonly error: unknown }

/**
 * Leases in PostgreSQL that end with a connection of pg as well. Its statements keep their order, and what is lost ends it; the
 * server hears of that end after its client has.
 */
export async function postgresAdvisoryTarget(): Promise<Target> {
  const server = await startPostgres({ clockShift: true, settings: { autovacuum: 'off', synchronous_commit: 'off' } })
  const admin = new Client({ connectionString: server.url })
  await admin.connect()
  const opened = new Map<Client, { readonly process: Process; readonly courier: Courier }>()
  const end = async (client: Client): Promise<void> => {
    if (opened.delete(client)) await client.end()
  }
  const maker = postgres(admin)
  await maker.init!()
  await maker.close()
  return {
    name: 'postgres-advisory',
    wrong: { ...seenBy(SEEN), ...NOT_UNDONE },
    bounds: { ttlMs: [400, 2000], shared: true, repeats: false },
    // With a connection, which may have to be opened first.
    looksFirst: true,
    lateMs: LATE_MS,
    async begin() {
      for (const client of opened.keys()) await end(client)
      await admin.query('TRUNCATE ringfence_leases')
      return WALL_MS
    },
    async clock(wallMs) {
      server.stopClock(wallMs)
      // The system of a process that dies ends its connections.
      for (const [client, { process, courier }] of opened) {
        if (process.isAlive) continue
        courier.loses('session')
        await end(client)
      }
    },
    open({ courier, process, random, wrong }) {
      const connect = (): Promise<PostgresConnectionLike> => {
        const open = async (): Promise<Client> => {
          const client = new Client({ connectionString: server.url })
          await client.connect()
          opened.set(client, { process, courier })
          return client
        }
        return connected(courier, { open, isOpen: (client) => opened.has(client), end, wrong })
      }
      const terms = { clock: process, random, listen: false, requestTimeout: REQUEST_TIMEOUT_MS }
      return postgresAdvisory(connect, terms)
    },
    async left() {
      const { rows } = await admin.query<{ resource: string; owner: string; left: string }>(LEFT)
      return rows.map(({ resource, owner, left }) => ({ resource, owner, leftMs: Number(left) }))
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([admin, ...opened.keys()].map((client) => client.end()))
      await server.stop()
    },
  }
}

interface How {
  /** A connection to the real server. */
  readonly open: () => Promise<Client>
  readonly isOpen: (client: Client) => boolean
  readonly end: (client: Client) => Promise<void>
  readonly wrong: string | undefined
}

const GREETING: Asked = { statement: '', params: [] }

/** A client of pg whose statements are carried. */
async function connected(courier: Courier, { open, isOpen, end, wrong }: How): Promise<PostgresConnectionLike> {
  let real: Client | undefined
  let last: Promise<unknown> = Promise.resolve()
  let isBroken = false
  const link: Link<Asked, Answer> = {
    inWords(asked) {
      const { statement, params } = asked
      const { words, replies, refusals } = inWords(`${statement} ${params.join(' ')}`, (rows: object[]) => rows)
      return { words, replies: (answer) => ('rows' in answer ? replies(answer.rows) : refusals(answer.error)) }
    },
    async visit({ statement, params }) {
      if (real === undefined) {
        real = await open()
        return { rows: [] }
      }
      if (!isOpen(real)) return undefined
      const before = last
      const client = real
      // One after the other: pg warns of statements that are not.
      const answered = (async (): Promise<Answer> => {
        await before
        return client.query<object>(changed(statement, wrong), [...params]).then(
          ({ rows }) => ({ rows }),
          (error: unknown) => ({ error }),
        )
      })()
      last = answered
      return answered
    },
    async left() {
      await last
      if (real === undefined) return
      if (isBroken) courier.loses('session')
      await end(real)
    },
  }
  const connection = courier.connect(link)
  await new Promise<void>((resolve, reject) => {
    connection.onClosed = () => reject(broken())
    connection.send(GREETING, () => resolve())
  })
  const { processID } = real as unknown as { processID: number }
  return clientOver(connection, processID, () => (isBroken = true))
}

function clientOver(
  connection: Connection<Asked, Answer>,
  processID: number,
  breaks: () => void,
): PostgresConnectionLike {
  const events = new EventEmitter()
  const underWay = new Set<(error: Error) => void>()
  let isOver = false
  const over = (): void => {
    if (isOver) return
    isOver = true
    for (const reject of underWay) reject(broken())
    events.emit('end')
  }
  connection.onClosed = () => {
    breaks()
    over()
  }
  const query = (statement: string, params: readonly unknown[] = []): Promise<{ rows: object[] }> =>
    new Promise((resolve, reject) => {
      if (isOver) return reject(broken())
      underWay.add(reject)
      connection.send({ statement, params }, (answer) => {
        underWay.delete(reject)
        if ('rows' in answer) resolve(answer)
        else reject(answer.error)
      })
    })
  const end = async (): Promise<void> => {
    connection.end()
    over()
  }
  const on = (name: string, listener: () => void): unknown => events.on(name, listener)
  const client = { processID, query, end, on, connect: unused, escapeIdentifier: unused }
  return client
}

function broken(): Error {
  return new Error('Connection terminated unexpectedly')
}

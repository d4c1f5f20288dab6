import type { PGlite } from '@electric-sql/pglite'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { OptionalMethod } from '../../../src/conformance/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { postgres, postgresAdvisory, type PostgresConnectionLike } from '../../../src/engines/postgres/index.ts'
import type { ServerHandle } from '../../../harness/handle.ts'
import { startPgbouncer } from '../../../harness/servers/pgbouncer.ts'
import { startPostgres, type PostgresServer } from '../../../harness/servers/postgres.ts'
import { conformanceOfTwo } from '../conformance.ts'
import { CLIENTS, CONNECTIONS, openPglite, type Connected } from './clients.ts'

let server: PostgresServer
let pooler: ServerHandle
let db: PGlite

beforeAll(async () => {
  ;[server, db] = await Promise.all([startPostgres(), openPglite()])
  pooler = await startPgbouncer(server.port, { mode: 'transaction', poolSize: 8 })
})

afterAll(async () => {
  await pooler.stop()
  await Promise.all([server.stop(), db.close()])
})

/** What follows from the short ttl of some cases is too little for a busy machine. */
const requestTimeout = '2s'

const METHODS: readonly OptionalMethod[] = ['handOver', 'adopt', 'probe', 'init']

interface Setup {
  readonly name: string
  /** The optional methods of the engine. */
  readonly methods: readonly OptionalMethod[]
  /** For two processes. */
  open(): Promise<{ engines: [() => Engine, () => Engine]; close(): Promise<unknown> }>
  disconnect?(engine: Engine): Promise<void>
  /** Cases that end the process with an error of the driver's that nobody can catch. */
  readonly fatal?: RegExp
}

const setups: Setup[] = [
  ...Object.keys(CLIENTS).map((kind) => withClient(kind, kind, () => server.url)),
  ...['a Pool of pg', 'postgres.js, columns in camel case'].map((kind) =>
    withClient(`${kind}, through a transaction pooler`, kind, () => pooler.url),
  ),
  ...['a Client of pg', 'a reserved connection of postgres.js'].map(withConnection),
]

// They wait most of the time.
describe.concurrent.each(setups.map((setup) => [setup.name, setup] as const))('%s', (_name, setup) => {
  testConformance(setup)
})

// A database in this very process has only one at a time.
describe('PGlite', () => {
  testConformance({
    name: 'PGlite',
    methods: [...METHODS, 'watch'],
    async open() {
      return { engines: [onPglite, onPglite], close: async () => undefined }
    },
  })
})

function testConformance(setup: Setup): void {
  let opened: Awaited<ReturnType<Setup['open']>>

  beforeAll(async () => {
    opened = await setup.open()
  })

  afterAll(() => opened.close())

  const engine = (process: number): Engine => opened.engines[process]!()
  const all = conformanceOfTwo({ ...setup, engine, shortTtlMs: 400, shared: true })
  const cases = all.filter((claim) => !setup.fatal?.test(claim.name))

  test.each(cases.map((claim) => [claim.name, claim] as const))('%s', async (_name, claim) => {
    await expect(claim.run()).resolves.toBeUndefined()
  })
}

test('nothing is left on the server but counters: no lease, nobody who listens, no advisory lock', async () => {
  expect(await server.sql('SELECT count(*) > 0 FROM ringfence_leases')).toBe('t')
  // What `once` leaves ends by itself.
  const held = 'SELECT resource FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > now()'
  await expect.poll(() => server.sql(held), { timeout: 10_000 }).toBe('')
  const locks = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`
  await expect.poll(() => server.sql(locks)).toBe('0')
  const listeners = `SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%LISTEN%' AND pid <> pg_backend_pid()`
  await expect.poll(() => server.sql(listeners)).toBe('0')
})

function onPglite(): Engine {
  return postgres(db, { requestTimeout })
}

function withClient(name: string, kind: string, url: () => string): Setup {
  return {
    name,
    methods: kind === 'an object with query(text, params)' ? METHODS : [...METHODS, 'watch'],
    async open() {
      const clients: Connected[] = [await CLIENTS[kind]!(url()), await CLIENTS[kind]!(url())]
      const engine = (index: number) => (): Engine => postgres(clients[index]!.client, { requestTimeout })
      return { engines: [engine(0), engine(1)], close: () => Promise.all(clients.map((client) => client.close())) }
    },
  }
}

function withConnection(kind: string): Setup {
  /** The processes of the server that serve an engine. */
  const processes = new Map<Engine, string[]>()
  return {
    name: `leases that end with ${kind}`,
    methods: [...METHODS, 'watch', 'leave', 'onDoubt'],
    // postgres.js 3.4.9 writes to the closed socket of a reserved connection: github.com/porsager/postgres/issues/1208
    ...(kind === 'a reserved connection of postgres.js' ? { fatal: /^onDoubt / } : {}),
    async open() {
      const source = CONNECTIONS[kind]!(server.url)
      const engine = (): Engine => {
        const pids: string[] = []
        const connect = async (): Promise<PostgresConnectionLike> => {
          const connection = await source.connect()
          pids.push(await pidOf(connection))
          return connection
        }
        const made = postgresAdvisory(connect, { requestTimeout })
        processes.set(made, pids)
        return made
      }
      return { engines: [engine, engine], close: () => source.end() }
    },
    async disconnect(engine) {
      for (const pid of processes.get(engine)!) await server.sql(`SELECT pg_terminate_backend(${pid})`)
    },
  }
}

async function pidOf(connection: PostgresConnectionLike): Promise<string> {
  const text = 'SELECT pg_backend_pid() AS pid'
  const answer = await ('unsafe' in connection
    ? (connection.unsafe as (text: string) => Promise<{ pid: number }[]>)(text)
    : (connection.query as (text: string) => Promise<{ rows: { pid: number }[] }>)(text))
  const [row] = 'rows' in answer ? answer.rows : answer
  return String(row!.pid)
}

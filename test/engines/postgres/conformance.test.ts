import type { PGlite } from '@electric-sql/pglite'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { conformance } from '../../../src/conformance.ts'
import type { Engine } from '../../../src/engine.ts'
import { postgres, postgresAdvisory } from '../../../src/engines/postgres/index.ts'
import type { ServerHandle } from '../../support/handle.ts'
import { startPgbouncer } from '../../support/servers/pgbouncer.ts'
import { startPostgres, type PostgresServer } from '../../support/servers/postgres.ts'
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
const timeout = '2s'

interface Setup {
  readonly name: string
  /** Two, as two processes would have them: what one connection would keep in order races on two. */
  open(): Promise<{ engines: [() => Engine, () => Engine]; close(): Promise<unknown> }>
}

const setups: Setup[] = [
  ...Object.keys(CLIENTS).map((kind) => withClient(kind, kind, () => server.url)),
  ...['a Pool of pg', 'postgres.js, columns in camel case'].map((kind) =>
    withClient(`${kind}, through a transaction pooler`, kind, () => pooler.url),
  ),
  {
    name: 'PGlite',
    async open() {
      return { engines: [onPglite, onPglite], close: async () => undefined }
    },
  },
  ...['a Client of pg', 'a reserved connection of postgres.js'].map(withConnection),
]

describe.each(setups.map((setup) => [setup.name, setup] as const))('%s', (_name, setup) => {
  let opened: Awaited<ReturnType<Setup['open']>>
  let asked = 0

  beforeAll(async () => {
    opened = await setup.open()
  })

  afterAll(() => opened.close())

  const cases = conformance({ engine: () => opened.engines[asked++ % 2]!(), shortTtlMs: 400 })

  // A database in this very process has only one at a time.
  const concurrent = setup.name !== 'PGlite'
  test.each(cases.map((claim) => [claim.name, claim] as const))('%s', { concurrent }, async (_name, claim) => {
    await expect(claim.run()).resolves.toBeUndefined()
  })
})

test('nothing is left on the server but counters: no lease, nobody who listens, no advisory lock', async () => {
  expect(await server.sql('SELECT count(*) > 0 FROM ringfence_leases')).toBe('t')
  expect(await server.sql('SELECT resource FROM ringfence_leases WHERE owner IS NOT NULL AND expires_at > now()')).toBe(
    '',
  )
  const locks = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`
  await expect.poll(() => server.sql(locks)).toBe('0')
  const listeners = `SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%LISTEN%' AND pid <> pg_backend_pid()`
  await expect.poll(() => server.sql(listeners)).toBe('0')
})

function onPglite(): Engine {
  return postgres(db, { timeout })
}

function withClient(name: string, kind: string, url: () => string): Setup {
  return {
    name,
    async open() {
      const clients: Connected[] = [await CLIENTS[kind]!(url()), await CLIENTS[kind]!(url())]
      const engine = (index: number) => (): Engine => postgres(clients[index]!.client, { timeout })
      return { engines: [engine(0), engine(1)], close: () => Promise.all(clients.map((client) => client.close())) }
    },
  }
}

function withConnection(kind: string): Setup {
  return {
    name: `leases that end with ${kind}`,
    async open() {
      const source = CONNECTIONS[kind]!(server.url)
      const engine = (): Engine => postgresAdvisory(() => source.connect(), { timeout })
      return { engines: [engine, engine], close: () => source.end() }
    },
  }
}

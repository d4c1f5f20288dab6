import postgresJs from 'postgres'
import { expect, test } from 'vitest'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startPostgres } from '../../../harness/servers/postgres.ts'
import type { Engine } from '../../../src/engine.ts'
import { postgres, postgresAdvisory } from '../../../src/engines/postgres/index.ts'
import { ONE_EACH, roundTripsOf } from '../shared/round-trips.ts'
import { connectedClient, openPool } from './clients.ts'

interface Opened {
  readonly engine: Engine
  end(): Promise<unknown>
}

const ENGINES: Record<string, (url: string) => Promise<Opened>> = {
  'a Pool of pg': async (url) => {
    const pool = openPool({ connectionString: url })
    return { engine: postgres(pool), end: () => pool.end() }
  },
  'a Client of pg': async (url) => {
    const client = await connectedClient(url)
    return { engine: postgres(client), end: () => client.end() }
  },
  'postgres.js': async (url) => {
    const sql = postgresJs(url, { onnotice: () => undefined })
    return { engine: postgres(sql), end: () => sql.end({ timeout: 1 }) }
  },
  'a session': async (url) => ({
    engine: postgresAdvisory(() => connectedClient(url)),
    end: async () => undefined,
  }),
}

test.each(Object.entries(ENGINES))(
  'one round trip an acquire and one a release, and one for 200 renewals, with %s',
  async (_name, open) => {
    await using server = await startPostgres()
    await using proxy = await startProxy(server.port)
    const opened = await open(server.url.replace(String(server.port), String(proxy.port)))
    const { engine } = opened
    await engine.init!()
    // Whose lease it is takes a look.
    expect(await roundTripsOf(engine, () => proxy.roundTrips)).toEqual({ ...ONE_EACH, refusal: 2, refusalByReaders: 3 })
    await engine.close()
    await opened.end()
  },
)

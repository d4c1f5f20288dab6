import { createPool as createMariadbPool } from 'mariadb'
import { createConnection, createPool } from 'mysql2/promise'
import { expect, test } from 'vitest'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startMariadb } from '../../../harness/servers/mariadb.ts'
import { mariadb, type MariadbLike } from '../../../src/engines/mariadb/index.ts'
import { ONE_EACH, roundTripsOf } from '../shared/round-trips.ts'
import { addressOf } from './clients.ts'

type Address = ReturnType<typeof addressOf>

interface TestedClient extends MariadbLike {
  query(sql: string): Promise<unknown>
  end(): Promise<unknown>
}

const CLIENTS: Record<string, (address: Address) => Promise<TestedClient>> = {
  // Of one connection, because it opens all of them at once; and without the pings to those that were idle.
  'a pool of mariadb': async (address) =>
    createMariadbPool({ ...address, connectionLimit: 1, minDelayValidation: 60_000 }),
  'a pool of mysql2': async (address) => createPool(address),
  'a connection of mysql2': (address) => createConnection(address),
}

// A read finds which one is gone. Readers are renewed by a statement of their own.
const EXPECTED = { ...ONE_EACH, renewalWithLoss: 2, renewalWithReaders: 2 }

test.each(Object.entries(CLIENTS))(
  'one round trip an acquire and one a release, and one for 200 renewals, with %s',
  async (_name, connect) => {
    await using server = await startMariadb()
    await using proxy = await startProxy(server.port)
    const client = await connect({ ...addressOf(server), port: proxy.port })
    const engine = mariadb(client)
    await engine.init!()
    expect(await roundTripsOf(engine, () => proxy.roundTrips)).toEqual(EXPECTED)
    await engine.close()
    await client.end()
  },
)

test('a server whose insertions return no rows: two an acquire, once that is known', async () => {
  await using server = await startMariadb()
  await using proxy = await startProxy(server.port)
  const pool = createPool({ ...addressOf(server), port: proxy.port })
  // To MySQL, and to MariaDB before 10.5, the word means as little as this one.
  const engine = mariadb({ query: (sql: string) => pool.query(sql.replace('RETURNING', 'RETOURNING')) })
  await engine.init!()
  expect(await roundTripsOf(engine, () => proxy.roundTrips)).toEqual({
    ...EXPECTED,
    first: [3, 1],
    fresh: [2, 1],
    again: [2, 1],
    several: [2, 1],
    severalAgain: [2, 1],
    reader: [2, 1],
    joins: [2, 1],
    readerOfSeveral: [2, 1],
    joinsSeveral: [2, 1],
  })
  await engine.close()
  await pool.end()
})

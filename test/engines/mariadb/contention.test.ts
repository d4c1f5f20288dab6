import { createPool, type Pool } from 'mysql2/promise'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { mariadb } from '../../../src/engines/mariadb/index.ts'
import { startMariadb, type MariadbServer } from '../../../harness/servers/mariadb.ts'
import { contend, GRANTS } from '../shared/sql/contention.ts'
import { addressOf } from './clients.ts'

let server: MariadbServer
const pools: Pool[] = []

beforeAll(async () => {
  server = await startMariadb()
})

afterAll(async () => {
  for (const pool of pools) await pool.end()
  await server.stop()
})

test.each(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])(
  'with %s, overlapping sets of resources exclude each other, and nothing of what collides below is seen above',
  async (isolation) => {
    await server.sql(`SET GLOBAL TRANSACTION ISOLATION LEVEL ${isolation}`)
    const open = (): Pool => {
      const pool = createPool({ ...addressOf(server), connectionLimit: 4 })
      pools.push(pool)
      return pool
    }
    const { grants, failures } = await contend(() => mariadb(open(), { requestTimeout: '10s' }))
    expect({ grants, failures }).toEqual({ grants: GRANTS, failures: [] })
    const collisions = await server.sql(`SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'`)
    console.log(`mariadb, ${isolation}: ${collisions.replace('\t', ' ')} so far`)
  },
)

// DATABASE_URL=postgres://user@127.0.0.1:5432/app node examples/postgres.mjs
import { Client, Pool } from 'pg'
import { createLocks } from 'ringfence'
import { postgres, postgresAdvisory, withAdvisoryLock } from 'ringfence/postgres'

const connectionString = process.env.DATABASE_URL
const pool = new Pool({ connectionString })

// Leases in a table: they end by time.
const locks = createLocks(postgres(pool), { ttl: '30s', wait: '10s' })
await locks.using('invoice:42', async (lease) => {
  console.log(`mine: token ${lease.token > 0n}; another try gives`, await locks.tryAcquire('invoice:42'))
})
await locks.close()

// The same, and they end with a connection: if this process dies, the next one gets in at once.
const connect = async () => {
  const client = new Client({ connectionString })
  await client.connect()
  return client
}
const bound = createLocks(postgresAdvisory(connect))
await bound.using('invoice:42', async (lease) => console.log(`mine as long as the connection: ${lease.held}`))
await bound.close()

// Everything that is protected is in this database: a transaction needs no lease at all.
const answer = await withAdvisoryLock(pool, 'invoice:42', async (tx) => {
  const { rows } = await tx.query('SELECT 6 * 7 AS answer')
  return rows[0].answer
})
console.log(`${answer}, by one at a time`)
await pool.end()

// A payment that is charged once, although the worker is killed in the middle: DATABASE_URL=postgres://… node examples/charge-once.mjs
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Pool } from 'pg'
import { createLocks } from 'ringfence'
import { postgresGuard } from 'ringfence/guard'
import { postgres } from 'ringfence/postgres'

const pool = new Pool({ connectionString: process.env.DATABASE_URL })
const locks = createLocks(postgres(pool), { ttl: '2s' })
const guard = postgresGuard(pool)

/** Takes 99 from the account, and returns the receipt. The key is made of the invoice: not of who charges it, or when. */
function charge(die = () => undefined) {
  return locks.using('account:7', (lease) =>
    guard.once(lease, 'charge of invoice 123', async (tx) => {
      const { rows } = await tx.query('UPDATE account SET balance = balance - 99 WHERE id = 7 RETURNING balance')
      die()
      return { receipt: 'A-1', balance: rows[0].balance }
    }),
  )
}

if (process.argv[2] === 'killed') await charge(() => process.kill(process.pid, 'SIGKILL'))
else {
  await guard.init()
  await pool.query('DROP TABLE IF EXISTS account')
  await pool.query('CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)')
  await pool.query('INSERT INTO account VALUES (7, 500)')

  const [, signal] = await once(spawn(process.execPath, [process.argv[1], 'killed'], { stdio: 'inherit' }), 'exit')
  console.log(`the first worker took the money, and was ended by ${signal} before the commit`)
  for (const worker of ['second', 'third']) {
    const { ran, value } = await charge()
    console.log(
      `${worker} worker: ${ran ? 'charged' : 'charged already'}, receipt ${value.receipt}, ${value.balance} left`,
    )
  }
}
await locks.close()
await pool.end()

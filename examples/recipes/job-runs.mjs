// A nightly job whose runs are on record, and which may be repeated: DATABASE_URL=postgres://localhost/app node examples/recipes/job-runs.mjs
import { Pool } from 'pg'
import { createLocks } from 'ringfence'
import { postgresGuard } from 'ringfence/guard'
import { postgres } from 'ringfence/postgres'

const pool = new Pool({ connectionString: process.env.DATABASE_URL })
const locks = createLocks(postgres(pool), { label: 'worker-1' })
const guard = postgresGuard(pool)
await guard.init()
await pool.query('DROP TABLE IF EXISTS payout')
await pool.query('CREATE TABLE payout (account int, day date, cents int NOT NULL, PRIMARY KEY (account, day))')

/** Idempotent: the day is an argument and not "today", and what is there already stays as it is. */
async function payOut(lease, day, accounts) {
  let paid = 0
  for (const account of accounts) {
    const write = (tx) =>
      tx.query('INSERT INTO payout VALUES ($1, $2, 100) ON CONFLICT (account, day) DO NOTHING', [account, day])
    const { rowCount } = await guard.transaction(lease, write) // each by itself: a run that dies has not lost the others
    paid += rowCount
    if (account === dies) throw new Error(`account ${account} is broken`)
  }
  return paid
}

let dies = 2
// A short atLeast, so that the second run of this demonstration need not wait. In production: a bit less than the interval.
const run = (accounts) =>
  locks.once('payouts', { atLeast: 0, runs: guard }, (lease) => payOut(lease, '2027-05-01', accounts))

console.log(await run([1, 2, 3]).catch((error) => `the first run: ${error.message}`))
dies = undefined
console.log(`the second run pays ${(await run([1, 2, 3])).value}`)
console.log(`the third run pays ${(await run([1, 2, 3])).value}`)
const history = await guard.runs('payouts', { limit: 3 })
console.log(
  history.map(({ outcome, message }) => (message === undefined ? outcome : `${outcome} (${message})`)).join(' <- '),
)
await locks.close()
await pool.end()

// One mail a minute and customer: DATABASE_URL=postgres://localhost/app node examples/recipes/rate-limit.mjs
import { Pool } from 'pg'
import { createLocks } from 'ringfence'
import { postgres } from 'ringfence/postgres'

const pool = new Pool({ connectionString: process.env.DATABASE_URL })
await pool.query('CREATE TABLE IF NOT EXISTS last_mail (customer text PRIMARY KEY, sent_at timestamptz NOT NULL)')
await pool.query('TRUNCATE last_mail')

/** No lock: the row says when the last one was, and one statement looks and writes. True if this call may send. */
async function mayMail(customer) {
  const { rowCount } = await pool.query(
    `INSERT INTO last_mail VALUES ($1, now())
     ON CONFLICT (customer) DO UPDATE SET sent_at = now() WHERE last_mail.sent_at <= now() - interval '1 minute'`,
    [customer],
  )
  return rowCount === 1
}

// Ten at once: the first takes the row, the others wait for it, look again, and find it too young.
const answers = await Promise.all(Array.from({ length: 10 }, () => mayMail('ada')))
console.log(`one statement: ${answers.filter(Boolean).length} of 10 may send`)

// The same with a lease, where there is no table for it, or no database at all: nobody runs it again within a minute.
const locks = createLocks(postgres(pool))
const mail = () => locks.once('mail:ada', { atLeast: '1m' }, () => 'sent')
const runs = await Promise.all(Array.from({ length: 10 }, mail))
console.log(`once with atLeast: ${runs.filter(({ ran }) => ran).length} of 10 have sent`)

await locks.close()
await pool.end()

// The withdrawal charged twice: two nodes process the same request, because the first one was paused past its lease.
// The fence is two columns of the account's own row, checked by the statement that writes it.
// POSTGRES_URL=postgres://localhost node examples/withdrawal.mjs
import { Pool } from 'pg'
import { createLocks } from 'ringfence'
import { postgresGuard } from 'ringfence/guard'
import { memory } from 'ringfence/memory'

const pool = new Pool({ connectionString: process.env.POSTGRES_URL })
await pool.query(`CREATE TABLE IF NOT EXISTS bank_account
  (id int PRIMARY KEY, balance int NOT NULL, fence_token bigint, fence_engine text)`)

const locks = createLocks(memory(), { wait: '5s' })
const guard = postgresGuard(pool)

async function unguarded(_lease, amount) {
  await pool.query('UPDATE bank_account SET balance = balance - $1 WHERE id = 7', [amount])
  return 'paid out'
}

async function guarded(lease, amount) {
  const fence = guard.column(lease, { after: 1 })
  const result = await pool.query(
    `UPDATE bank_account SET balance = balance - $1, ${fence.set} WHERE id = 7 AND ${fence.where}`,
    [amount, ...fence.params],
  )
  await fence.check(result, () => pool.query(`SELECT ${fence.select} FROM bank_account WHERE id = 7`))
  return 'paid out'
}

async function withdrawTwice(withdraw) {
  await pool.query(`INSERT INTO bank_account VALUES (7, 100) ON CONFLICT (id)
    DO UPDATE SET balance = 100, fence_token = NULL, fence_engine = NULL`)
  const first = await locks.acquire('account:7', { ttl: '100ms', renew: false })
  // … the first node is paused here, with the request in its hands. It is given to a second node.
  const second = await locks.acquire('account:7')
  const node2 = await withdraw(second, 30)
  await second.release()
  // … and the first one goes on.
  const node1 = await withdraw(first, 30).catch((error) => error.code)
  const { rows } = await pool.query('SELECT balance FROM bank_account WHERE id = 7')
  console.log(`${withdraw.name}: node 2 ${node2}, node 1 ${node1}, balance ${rows[0].balance}`)
}

await withdrawTwice(unguarded)
await withdrawTwice(guarded)
await locks.close()
await pool.end()

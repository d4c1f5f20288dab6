// The invoice that must be charged once. A lock is the wrong tool for this: it says who should try, for a while, and the
// charge is made by somebody else's service, which checks no token. What is right is a fact that outlives every process (a
// unique constraint) and a key by which the payment provider knows a repetition (an idempotency key). No lock below.
// POSTGRES_URL=postgres://localhost node examples/invoice.mjs
import { Pool } from 'pg'

const pool = new Pool({ connectionString: process.env.POSTGRES_URL })
await pool.query('CREATE TABLE IF NOT EXISTS charge (invoice int PRIMARY KEY, key text NOT NULL, receipt text)')
await pool.query('DELETE FROM charge WHERE invoice = 123')

// The payment provider: the same key again gets the same receipt.
const receipts = new Map()
async function pay(key, amount) {
  if (!receipts.has(key)) receipts.set(key, `receipt ${receipts.size + 1} over ${amount}`)
  return receipts.get(key)
}

async function charge(worker, { dies = false } = {}) {
  // The first that comes decides on the key, and it stays: it is made of the invoice, not of the process that charges it or of the time.
  await pool.query("INSERT INTO charge VALUES (123, 'invoice-123') ON CONFLICT DO NOTHING")
  const { rows } = await pool.query('SELECT key, receipt FROM charge WHERE invoice = 123')
  const [{ key, receipt }] = rows
  if (receipt !== null) return console.log(`${worker}: charged already, ${receipt}`)
  const paid = await pay(key, 99)
  if (dies) return console.log(`${worker}: has paid, and dies before it can note it`)
  await pool.query('UPDATE charge SET receipt = $1 WHERE invoice = 123', [paid])
  console.log(`${worker}: ${paid}`)
}

await charge('first worker', { dies: true })
await Promise.all([charge('second worker'), charge('third worker')])
await charge('fourth worker')
console.log(`charged ${receipts.size} time`)
await pool.end()

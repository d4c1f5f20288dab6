// The paused barista: a worker is stopped for longer than its lease, wakes up, and goes on selling what is gone.
// POSTGRES_URL=postgres://localhost node examples/paused-barista.mjs
import { Pool } from 'pg'
import { createLocks } from 'ringfence'
import { postgresGuard } from 'ringfence/guard'
import { memory } from 'ringfence/memory'

const pool = new Pool({ connectionString: process.env.POSTGRES_URL })
await pool.query('CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, shots int NOT NULL)')
await pool.query("INSERT INTO stock VALUES ('espresso', 10) ON CONFLICT (item) DO UPDATE SET shots = 10")

// Only for memory(), which counts from 1 in every process: the fences of the last run would refuse this one.
await pool.query('DROP TABLE IF EXISTS barista_guard')

const locks = createLocks(memory(), { wait: '5s' })
const guard = postgresGuard(pool, { table: 'barista_guard' })

const sell = (barista, lease) =>
  guard.transaction(lease, async (tx) => {
    const { rows } = await tx.query("UPDATE stock SET shots = shots - 1 WHERE item = 'espresso' RETURNING shots")
    console.log(`${barista} sold one with token ${lease.token}: ${rows[0].shots} left`)
  })

// In one process a lease that nobody renews does what a stopped process does.
const first = await locks.acquire('espresso', { ttl: '1s', renew: false })
await sell('A', first)
// … A is stopped here, by its garbage collector or its hypervisor. Its lease ends, and B has the next one.
const second = await locks.acquire('espresso')
await sell('B', second)
// … A goes on where it was. The lock cannot stop it; the database does.
await sell('A', first).catch((error) => console.log(`A was refused: ${error.message}`))

const { rows } = await pool.query("SELECT shots FROM stock WHERE item = 'espresso'")
console.log(`${rows[0].shots} left, ${guard.rejections} write refused`)
await locks.close()
await pool.end()

// Payment, inventory and shipping of one order, three services with one lock:
// REDIS_URL=redis://127.0.0.1:6379 DATABASE_URL=postgres://localhost/app node examples/recipes/services.mjs
import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { createLocks } from 'ringfence'
import { postgresGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const pool = new Pool({ connectionString: process.env.DATABASE_URL })
await pool.query('CREATE TABLE IF NOT EXISTS step (id text, service text, PRIMARY KEY (id, service))')
await pool.query("DELETE FROM step WHERE id = '42'")

/** Share this function as a package: a service that spells the name, the prefix or the servers differently locks nobody out. */
const orderLock = (id) => `order:${id}`

/** Each service has its own locks and its own fences, and the same name. */
function service(name) {
  const locks = createLocks(redis(client, { prefix: 'lock:' }), { label: name, wait: '20s' })
  const guard = postgresGuard(pool, { table: `fence_of_${name}` })
  const act = (lease, id) =>
    guard.transaction(lease, (tx) => tx.query('INSERT INTO step VALUES ($1, $2) ON CONFLICT DO NOTHING', [id, name]))
  return { name, locks, act, handle: (id) => locks.using(orderLock(id), (lease) => act(lease, id)) }
}

const [payment, inventory, shipping] = ['payment', 'inventory', 'shipping'].map(service)

// One process has the order at a time, of all services together.
const free = () => shipping.locks.tryAcquire(orderLock(42)).then((lease) => lease !== null)
await payment.locks.using(orderLock(42), async () => console.log(`payment has it; shipping may: ${await free()}`))

const lease = await payment.locks.acquire(orderLock(42), { ttl: '200ms', renew: false })
// … payment is paused here for longer than its lease. The others take their turns.
await Promise.all([inventory.handle('42'), shipping.handle('42')])
// Its own fences have seen no newer token, because nobody else writes there. What stops it is the guard's look at the lease.
console.log('payment goes on:', await payment.act(lease, '42').catch((error) => `${error.code}, ${error.reason}`))
await payment.handle('42')
const { rows } = await pool.query("SELECT service FROM step WHERE id = '42' ORDER BY service")
console.log(`done: ${rows.map((row) => row.service).join(', ')}`)

for (const { locks } of [payment, inventory, shipping]) await locks.close()
await pool.end()
client.disconnect()

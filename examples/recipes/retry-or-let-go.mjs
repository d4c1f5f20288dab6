// The database fails while the lease is held: retry briefly, then let go.
// REDIS_URL=redis://127.0.0.1:6379 DATABASE_URL=postgres://localhost/app node examples/recipes/retry-or-let-go.mjs
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { createLocks } from 'ringfence'
import { postgresGuard } from 'ringfence/guard'
import { redis } from 'ringfence/redis'

const client = new Redis(process.env.REDIS_URL)
const pool = new Pool({ connectionString: process.env.DATABASE_URL })
pool.on('error', () => undefined)
const locks = createLocks(redis(client))
const guard = postgresGuard(pool)
await guard.init()

/** Two retries: a restart or a failover of a second is bridged, a longer one is not waited for with the lease in hand. */
async function patiently(lease, work) {
  for (const pauseMs of [200, 800, undefined]) {
    try {
      return await work()
    } catch (error) {
      // Only what a repeat can cure, and only while the lease is ours. Else the lease is released by using.
      if (pauseMs === undefined || !passing(error) || !lease.held) throw error
      await sleep(pauseMs, undefined, { signal: lease.signal })
    }
  }
}
/** The connection was refused or ended, the server stops, starts or is full, the guard had no answer. */
const passing = (error) => error.transient === true || /^(ECONN|EPIPE|08|57P0|53300)/.test(error.code ?? '')

/** `guard.once`: a commit whose answer was lost is not made twice. */
const settle = (invoice, work) =>
  locks.using(`invoice:${invoice}`, (lease) => patiently(lease, () => guard.once(lease, `settle:${invoice}`, work)))

let failures = 1 // the server ends the connection in the middle, once; then each time
const work = async (tx) => {
  if (failures-- > 0) await tx.query('SELECT pg_terminate_backend(pg_backend_pid())')
  return 'settled'
}
const run = `${Date.now()}`
console.log(await settle(`${run}-1`, work).then(({ value }) => `a short outage: ${value}`))
failures = Infinity
console.log(await settle(`${run}-2`, work).catch((error) => `a long outage: let go after ${error.code}`))
console.log('free for the next one:', (await locks.status(`invoice:${run}-2`)) === null)
await locks.close()
await pool.end()
client.disconnect()

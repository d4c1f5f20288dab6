// DATABASE_URL=mariadb://user@127.0.0.1:3306/app node examples/mariadb.mjs
import { createPool } from 'mariadb'
import { createLocks } from 'ringfence'
import { mariadb } from 'ringfence/mariadb'

const pool = createPool(process.env.DATABASE_URL)
const locks = createLocks(mariadb(pool), { ttl: '30s', wait: '10s' })

const lease = await locks.acquire(['account:1', 'account:2'])
console.log(`both are mine: ${lease.held}, with one token ${lease.token > 0n}`)
console.log('another try gives', await locks.tryAcquire('account:2'))
console.log(`released while still mine: ${await lease.release()}`)

await locks.close() // your pool stays open
await pool.end()

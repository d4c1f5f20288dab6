// Adds one to a counter, once, and dies where its parent says: ONCE_STORE, ONCE_URL, ONCE_KEY, ONCE_DIES.
import { Redis } from 'ioredis'
import * as mariadb from 'mariadb'
import { MongoClient } from 'mongodb'
import { Pool } from 'pg'
import { mariadbGuard, mongodbGuard, postgresGuard, redisGuard } from '../../../dist/guards/index.cjs'

const { ONCE_STORE, ONCE_URL, ONCE_KEY: key, ONCE_DIES: dies } = process.env
const COUNTER = 'CREATE TABLE IF NOT EXISTS counter (id varchar(200) PRIMARY KEY, n int NOT NULL)'

const stores = {
  async postgres(url) {
    const pool = new Pool({ connectionString: url })
    await pool.query(COUNTER).catch((error) => error.code === '23505' || Promise.reject(error))
    const add = 'INSERT INTO counter VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = counter.n + 1'
    return {
      once: (lease, then) => postgresGuard(pool).once(lease, key, async (tx) => then(await tx.query(add, [key]))),
      count: async () => (await pool.query('SELECT n FROM counter WHERE id = $1', [key])).rows[0]?.n ?? 0,
    }
  },
  async mariadb(url) {
    const pool = mariadb.createPool(url.replace('mysql:', 'mariadb:'))
    await pool.query(COUNTER)
    const add = 'INSERT INTO counter VALUES (?, 1) ON DUPLICATE KEY UPDATE n = n + 1'
    return {
      once: (lease, then) => mariadbGuard(pool).once(lease, key, async (tx) => then(await tx.query(add, [key]))),
      count: async () => (await pool.query('SELECT n FROM counter WHERE id = ?', [key]))[0]?.n ?? 0,
    }
  },
  async mongodb(url) {
    const db = (await new MongoClient(url).connect()).db('test')
    const counters = db.collection('counters')
    const add = (session) => counters.updateOne({ _id: key }, { $inc: { n: 1 } }, { upsert: true, session })
    return {
      once: (lease, then) => mongodbGuard(db).once(lease, key, async (session) => then(await add(session))),
      count: async () => (await counters.findOne({ _id: key }))?.n ?? 0,
    }
  },
  async redis(url) {
    const client = new Redis(url)
    const script = 'redis.call("incr", KEYS[1]) return ARGV[1]'
    return {
      once: (lease) => redisGuard(client).once(lease, key, { script, keys: [`counter:${key}`], args: ['a receipt'] }),
      count: async () => Number(await client.get(`counter:${key}`)),
    }
  },
}

const die = () => process.kill(process.pid, 'SIGKILL')
const store = await stores[ONCE_STORE](ONCE_URL)
const lease = { resources: [`resource of ${key}`], token: BigInt(process.env.ONCE_TOKEN), engine: 'redis:' }
const called = store.once(lease, async () => {
  process.send({ type: 'inside' })
  if (dies === 'in the work') await new Promise(() => undefined)
  if (dies === 'before the commit') die()
  return 'a receipt'
})
// As soon as the call is on its way, or as soon as its answer has come.
if (dies === 'when it is sent') setImmediate(die)
const { ran, value, token } = await called
if (dies === 'after the commit') die()
process.send({ type: 'result', ran, value, token: String(token), count: await store.count() })

// Adds one to a balance under a lease, again and again. Between its read and its write it sometimes says so and waits for
// a word: that is when it is stopped for longer than its lease lasts. It then writes what it was about to write.
import { Redis } from 'ioredis'
import { createLocks } from '../../../dist/index.cjs'
import { redis } from '../../../dist/engines/redis/index.cjs'

const client = new Redis({ host: '127.0.0.1', port: Number(process.env.LEASE_PORT) })
await client.ping()
const stores = new Map()

async function storeOf(name) {
  if (!stores.has(name)) {
    const { open } = await import(`../stores/${name}.mjs`)
    stores.set(name, await open())
  }
  return stores.get(name)
}

const word = () => new Promise((resolve) => process.once('message', resolve))

async function run({ account, form, sections, stopEvery, ttlMs }, store) {
  const locks = createLocks(redis(client), { ttl: ttlMs, wait: '100s' })
  const count = { written: 0, refused: 0, ended: 0 }
  for (let round = 1; count.written < sections; round++) {
    const lease = await acquire(locks, account)
    const token = String(lease.token)
    try {
      await store[form](lease, async () => {
        if (round % stopEvery !== 0) return
        process.send({ type: 'between', token })
        await word()
      })
      count.written++
      process.send({ type: 'written', token })
    } catch (error) {
      if (error.code === 'STALE_TOKEN') count.refused++
      // On a busy machine a lease can end before its first write: the guard rolls back.
      else if (error.code === 'LEASE_LOST' || store.isEnded?.(error)) count.ended++
      else throw error
      process.send({ type: 'refused', token })
    }
    await lease.release().catch(() => undefined)
  }
  await locks.close()
  return count
}

/** On a busy machine a node may be late with its answer. */
async function acquire(locks, account) {
  for (;;) {
    try {
      return await locks.acquire(account)
    } catch (error) {
      if (error.code !== 'ENGINE' && error.code !== 'QUORUM') throw error
    }
  }
}

process.send({ type: 'ready' })
for (;;) {
  const task = await word()
  const store = await storeOf(task.store)
  if (task.type === 'create') process.send({ type: 'created', ...(await store.create(task.account)) })
  if (task.type === 'connect') process.send({ type: 'connected' })
  if (task.type === 'run') process.send({ type: 'done', ...(await run(task, store)) })
  if (task.type === 'result') process.send({ type: 'result', ...(await store.result(task.account)) })
}

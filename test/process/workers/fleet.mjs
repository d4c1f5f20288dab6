// One process of a mixed fleet: enters the section again and again by the lock of one library, until it is told to end.
import { EventEmitter, once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { connect, libraryOf } from '../../../bench/libraries.mjs'
import { createLocks } from '../../../dist/index.cjs'
import { redis, redlock } from '../../../dist/engines/redis/index.cjs'
import DropIn from '../../../dist/redlock/index.js'

const { FLEET_LIBRARY, FLEET_PORTS, FLEET_STORE, FLEET_TTL_MS } = process.env
const ttlMs = Number(FLEET_TTL_MS)
/** What redis-semaphore puts before the name of its keys. */
const PREFIX = 'mutex:'
const NAME = 'section'

/** Between two attempts, as each library does it by default. Those that keep the keys of a minority try once at a time. */
const PEERS = {
  'redlock 4': async (clients) => {
    const { default: Redlock } = await import('redlock4')
    // Its defaults, but for the number of attempts.
    const lock = new Redlock(clients, { retryCount: -1 })
    return { acquire: () => lock.lock(PREFIX + NAME, ttlMs), release: (held) => held.unlock() }
  },
  'redlock 5 beta': (clients) => benched('redlock 5 beta', 200, clients, PREFIX + NAME),
  '@sesamecare-oss/redlock': (clients) => benched('@sesamecare-oss/redlock', 200, clients, PREFIX + NAME),
  'redlock-universal': (clients) => benched('redlock-universal', 100, clients, PREFIX + NAME),
  'redis-semaphore': async (clients) => {
    const { Mutex, RedlockMutex } = await import('redis-semaphore')
    // By default a loss ends the process.
    const options = { acquireTimeout: 300_000, lockTimeout: ttlMs, onLockLost: () => undefined }
    const acquire = async () => {
      const lock =
        clients.length === 1 ? new Mutex(clients[0], NAME, options) : new RedlockMutex(clients, NAME, options)
      await lock.acquire()
      return lock
    }
    return { acquire, release: (held) => held.release() }
  },
  'ringfence/redlock': async (clients) => {
    const lock = new DropIn(clients, { retryCount: -1 })
    return { acquire: () => lock.acquire([PREFIX + NAME], ttlMs), release: (held) => held.release() }
  },
  ringfence: async (clients) => {
    const engine = clients.length === 1 ? redis(clients[0], { prefix: PREFIX }) : redlock(clients, { prefix: PREFIX })
    const locks = createLocks(engine, { ttl: ttlMs, wait: '5m' })
    return { acquire: () => locks.acquire(NAME), release: (lease) => lease.release(), close: () => locks.close() }
  },
}

async function benched(name, retryMs, clients, resource) {
  const lock = await libraryOf({ name, retryMs }).open(clients)
  return { acquire: () => lock.acquire(resource, ttlMs), release: (held) => lock.release(held) }
}

const clients = await connect(FLEET_PORTS.split(',').map(Number))
const [store] = await connect([Number(FLEET_STORE)])
const { acquire, release, close = async () => undefined } = await PEERS[FLEET_LIBRARY](clients)

/** What it was told: `end`, and `stay`, in its next section until `go on`. */
const told = new EventEmitter()
const orders = new Set()
process.on('message', ({ type }) => {
  orders.add(type)
  told.emit(type)
})

process.send({ type: 'ready' })
await once(told, 'go')

/**
 * What a lock is for: read, think, write. Two at once lose an update. Nobody but the store can stop a process that has slept
 * past its ttl, so this one asks its own clock before it writes, and leaves it be in the second half of its ttl.
 */
async function section(sinceMs) {
  const count = Number((await store.get('count')) ?? '0')
  if (orders.delete('stay')) {
    const isToGoOn = once(told, 'go on')
    process.send({ type: 'stays' })
    await isToGoOn
  }
  await pause(5 + 10 * Math.random())
  const isInTime = performance.now() - sinceMs < ttlMs / 2
  if (isInTime)
    await store
      .multi()
      .set('count', count + 1)
      .rpush('sections', FLEET_LIBRARY)
      .exec()
  process.send({ type: isInTime ? 'wrote' : 'was late' })
}

while (!orders.has('end')) {
  const held = await acquire()
  await section(performance.now())
  // It may be over, which is an error in some of them.
  await Promise.resolve(release(held)).catch(() => undefined)
  await pause(10 + 20 * Math.random())
}

await close()
for (const client of [...clients, store]) client.disconnect()
process.send({ type: 'done' })

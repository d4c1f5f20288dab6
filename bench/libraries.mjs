import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redlock as SesameRedlock } from '@sesamecare-oss/redlock'
import { Redis } from 'ioredis'
import { Mutex, RedlockMutex } from 'redis-semaphore'
import Redlock from 'redlock'
import { createLock, createRedlock, IoredisAdapter } from 'redlock-universal'
import { createLocks } from 'ringfence'
import { redis, redlock } from 'ringfence/redis'

/**
 * Every library behind the same small interface, with the options that serve it best; README.md tells why these.
 *
 * @typedef {object} Lock
 * @property {(resource: string, ttlMs: number, signal?: AbortSignal) => Promise<unknown>} acquire waits until it has
 *   the lock; the signal is for those that may not finish, to end the race
 * @property {(handle: any) => Promise<unknown>} release
 * @property {((resource: string, ttlMs: number) => Promise<() => Promise<unknown>>) | undefined} hold acquires with
 *   automatic renewal and answers how to let go
 * @property {() => Promise<void>} close
 *
 * @typedef {object} Library
 * @property {string} name
 * @property {boolean} peer
 * @property {readonly string[]} sends what it sends outside of scripts, in lower case; needed to count requests
 * @property {(clients: Redis[]) => Lock} open
 */

/**
 * In contention, the time between a poller's attempts, in ms: for each the best of 2, 5, 10, 25, 50, 100 and 200 by the
 * sweep in README.md. With jitter, rare attempts win, because they leave the servers to those who have the lock.
 */
const RETRY_MS = 100
/** redis-semaphore has no jitter: its waiters ask all at once, and the lock lies idle until they ask again. */
const SEMAPHORE_RETRY_MS = 2

const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
/** A week: the default of the engine's fenceTtl. */
const FENCE_TTL_MS = 604_800_000
const RELEASE_SHA = createHash('sha1').update(RELEASE).digest('hex')

/** The limit: what any Redis lock without fencing has to send, and nothing around it. @type {Library} */
export const bare = {
  name: 'bare commands',
  peer: false,
  sends: ['set'],
  open(clients) {
    const loaded = Promise.all(clients.map((client) => client.script('LOAD', RELEASE)))
    return {
      async acquire(resource, ttlMs) {
        await loaded
        const owner = randomBytes(16).toString('hex')
        const answers = await all(clients, (client) => client.set(resource, owner, 'PX', ttlMs, 'NX'))
        if (answers.some((answer) => answer !== 'OK')) throw new Error(`${resource} is held`)
        return { resource, owner }
      },
      release: ({ resource, owner }) => all(clients, (client) => client.evalsha(RELEASE_SHA, 1, resource, owner)),
      hold: undefined,
      close: async () => undefined,
    }
  },
}

/** One node is spared the array: it is the limit, after all. */
async function all(clients, send) {
  return clients.length === 1 ? [await send(clients[0])] : Promise.all(clients.map(send))
}

/** @type {Library} */
export const ringfence = {
  name: 'ringfence',
  peer: false,
  sends: ['subscribe', 'unsubscribe', 'hello', 'ping'],
  open(clients) {
    const engine = clients.length === 1 ? redis(clients[0]) : redlock(clients)
    const locks = createLocks(engine, { wait: '5m' })
    const acquire = (resource, ttlMs) => locks.acquire(resource, { ttl: ttlMs })
    return {
      acquire,
      release: (lease) => lease.release(),
      async hold(resource, ttlMs) {
        const lease = await acquire(resource, ttlMs)
        return () => lease.release()
      },
      close: () => locks.close(),
    }
  },
}

/**
 * How far fencing can get: the two scripts of ringfence, sent as plainly as the bare commands are. What ringfence itself is
 * slower than this is its JavaScript; the rest of the distance to the bare commands is the counter that makes the token.
 *
 * @type {Library}
 */
const scriptsAlone = {
  name: 'its scripts alone',
  peer: false,
  sends: [],
  open(clients) {
    let scripts
    const loaded = ownScripts().then(async (own) => {
      const texts = [own.ACQUIRE.text, own.RELEASE.text]
      await Promise.all(clients.flatMap((client) => texts.map((text) => client.script('LOAD', text))))
      scripts = own
    })
    // Without it the release looks at the counter; a lone node need not.
    const token = clients.length === 1 ? '0' : '1'
    return {
      async acquire(resource, ttlMs) {
        await loaded
        const owner = randomBytes(16).toString('hex')
        const fence = `ringfence:fence:{${resource}}`
        const proposal = String(Date.now() * 1000)
        await all(clients, (client) =>
          client.evalsha(scripts.ACQUIRE.sha, 2, resource, fence, owner, ttlMs, proposal, FENCE_TTL_MS),
        )
        return { resource, fence, owner }
      },
      release: ({ resource, fence, owner }) =>
        all(clients, (client) => {
          const channel = `ringfence:freed:{${resource}}`
          return client.evalsha(scripts.RELEASE.sha, 2, resource, fence, owner, token, FENCE_TTL_MS, 'publish', channel)
        }),
      hold: undefined,
      close: async () => undefined,
    }
  },
}

/** Not public, so from the sources: how the scripts are sent is the engine's own business. */
async function ownScripts() {
  const { runnerImport } = await import('vite')
  const path = new URL('../src/engines/redis/scripts.ts', import.meta.url).pathname
  return (await runnerImport(path, { configFile: false })).module
}

/** @type {Library} */
const redlock5 = {
  name: 'redlock 5 beta',
  peer: true,
  sends: [],
  open: (clients) => redlockLike(new Redlock(clients, { retryCount: 0 })),
}

/** @type {Library} */
const sesamecare = {
  name: '@sesamecare-oss/redlock',
  peer: true,
  sends: [],
  open: (clients) => redlockLike(new SesameRedlock(clients, { retryCount: 0 })),
}

/**
 * Their own retries keep a minority's keys while they wait, so that on several nodes rivals block each other until the
 * ttl ends. Tried once and retried out here, each attempt cleans up behind itself, and they get on.
 */
function redlockLike(lock) {
  return {
    acquire: (resource, ttlMs, signal) => persistently(() => lock.acquire([resource], ttlMs), 'ExecutionError', signal),
    release: (handle) => handle.release(),
    hold: (resource, ttlMs) => heldBy((work) => lock.using([resource], ttlMs, { retryCount: 0 }, work)),
    close: async () => undefined,
  }
}

async function persistently(attempt, refusal, signal) {
  for (;;) {
    try {
      return await attempt()
    } catch (error) {
      if (error?.name !== refusal) throw error
      await sleep(RETRY_MS * (0.5 + Math.random()), undefined, { signal })
    }
  }
}

/** @type {Library} */
const redisSemaphore = {
  name: 'redis-semaphore',
  peer: true,
  sends: ['set'],
  open(clients) {
    const mutex = (resource, options) =>
      clients.length === 1 ? new Mutex(clients[0], resource, options) : new RedlockMutex(clients, resource, options)
    const options = { acquireTimeout: 300_000, retryInterval: SEMAPHORE_RETRY_MS }
    return {
      async acquire(resource, ttlMs, signal) {
        const lock = mutex(resource, { ...options, lockTimeout: ttlMs })
        await lock.acquire(signal)
        return lock
      },
      release: (lock) => lock.release(),
      async hold(resource, ttlMs) {
        const lock = mutex(resource, { ...options, lockTimeout: ttlMs })
        await lock.acquire()
        return () => lock.release()
      },
      close: async () => undefined,
    }
  },
}

/** @type {Library} */
const redlockUniversal = {
  name: 'redlock-universal',
  peer: true,
  sends: ['set', 'script|load'],
  open(clients) {
    const adapters = clients.map((client) => new IoredisAdapter(client))
    const lockOf = (key, ttl) => {
      const options = { key, ttl, retryAttempts: 0 }
      return clients.length === 1
        ? createLock({ ...options, adapter: adapters[0], performance: 'lean' })
        : createRedlock({ ...options, adapters })
    }
    return {
      async acquire(resource, ttlMs, signal) {
        const lock = lockOf(resource, ttlMs)
        return { lock, handle: await persistently(() => lock.acquire(), 'LockAcquisitionError', signal) }
      },
      release: ({ lock, handle }) => lock.release(handle),
      hold: (resource, ttlMs) => heldBy((work) => lockOf(resource, ttlMs).using(work)),
      close: async () => undefined,
    }
  },
}

/** For libraries that renew only while a function runs. */
function heldBy(using) {
  return new Promise((acquired, failed) => {
    const done = using(() => new Promise((end) => acquired(() => (end(), done))))
    done.catch(failed)
  })
}

/** @type {readonly Library[]} */
export const libraries = [bare, ringfence, redlock5, sesamecare, redisSemaphore, redlockUniversal]
/** Without contention there is one more to compare with. */
export const uncontendedLibraries = [...libraries.slice(0, 2), scriptsAlone, ...libraries.slice(2)]
export const peers = libraries.filter(({ peer }) => peer)

/** @param {string} name */
export function libraryNamed(name) {
  const found = uncontendedLibraries.find((library) => library.name === name)
  if (found === undefined)
    throw new Error(`no library is called ${name}; there are ${libraries.map((l) => l.name).join(', ')}`)
  return found
}

/** The same client with the same options for every library. @param {readonly number[]} ports */
export async function connect(ports) {
  const clients = ports.map((port) => new Redis(port, '127.0.0.1', { lazyConnect: true }))
  for (const client of clients) client.on('error', () => undefined)
  await Promise.all(clients.map((client) => client.connect()))
  return clients
}

/** How many of the counted calls were requests of the library: the rest ran inside its scripts. */
export function requests(library, calls) {
  let sum = 0
  for (const name of ['evalsha', 'eval', ...library.sends]) sum += calls.get(name) ?? 0
  return sum
}

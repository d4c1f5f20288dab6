import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { loadRingfence } from './builds.mjs'
import { bestDelay } from './tuning.mjs'

/**
 * Every library behind the same small interface; README.md tells which options it gets, and why. A library is loaded when it is
 * opened, so that a process that measures one has nothing of the others in it.
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
 * @property {string} [from] for ringfence: which build, see builds.mjs
 * @property {number} [retryMs] for a peer: the time between attempts; without it the library has all of its defaults
 * @property {(clients: Redis[]) => Promise<Lock>} open
 */

const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
/** A week: the default of the engine's fenceTtl. */
const FENCE_TTL_MS = 604_800_000
const RELEASE_SHA = createHash('sha1').update(RELEASE).digest('hex')

/** What any Redis lock without fencing has to send, and nothing around it. @type {Library} */
export const bare = {
  name: 'bare commands',
  peer: false,
  sends: ['set'],
  async open(clients) {
    await Promise.all(clients.map((client) => client.script('LOAD', RELEASE)))
    return {
      async acquire(resource, ttlMs) {
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

/** One node is spared the array: it is what others are compared with, after all. */
async function all(clients, send) {
  return clients.length === 1 ? [await send(clients[0])] : Promise.all(clients.map(send))
}

/** @param {string} name @param {string} [from] @returns {Library} */
export function ringfenceFrom(name, from) {
  return {
    name,
    peer: false,
    sends: ['subscribe', 'unsubscribe', 'hello', 'ping'],
    ...(from === undefined ? {} : { from }),
    async open(clients) {
      const { createLocks, redis, redlock } = await loadRingfence(from)
      const engine = clients.length === 1 ? redis(clients[0]) : redlock(clients)
      const locks = createLocks(engine, { wait: '5m' })
      const acquire = (resource, ttlMs) => locks.acquire(resource, { ttl: ttlMs })
      return {
        acquire,
        release: (lease) => lease.release(),
        using: (resource, ttlMs) => locks.using(resource, { ttl: ttlMs }, async () => undefined),
        async hold(resource, ttlMs) {
          const lease = await acquire(resource, ttlMs)
          return () => lease.release()
        },
        close: () => locks.close(),
      }
    },
  }
}

export const ringfence = ringfenceFrom('ringfence')

/**
 * What fencing costs on the servers: the two scripts of ringfence, sent as plainly as the bare commands are. Its client is of
 * promises like theirs, so it is no limit: callbacks, and commands that share a write or a script, can be faster.
 *
 * @type {Library}
 */
export const scriptsAlone = {
  name: 'its scripts alone',
  peer: false,
  sends: [],
  async open(clients) {
    const { ACQUIRE, RELEASE: FREE } = await ownScripts()
    const texts = [ACQUIRE.text, FREE.text]
    await Promise.all(clients.flatMap((client) => texts.map((text) => client.script('LOAD', text))))
    // Without it the release looks at the counter; a lone node need not.
    const token = clients.length === 1 ? '0' : '1'
    const lock = {
      async acquire(resource, ttlMs) {
        const owner = randomBytes(16).toString('hex')
        const fence = `ringfence:fence:{${resource}}`
        const line = `ringfence:line:{${resource}}`
        const proposal = String(Date.now() * 1000)
        await all(clients, (client) =>
          client.evalsha(ACQUIRE.sha, 2, resource, fence, owner, ttlMs, proposal, FENCE_TTL_MS),
        )
        return { resource, fence, line, owner }
      },
      release: ({ resource, fence, line, owner }) =>
        all(clients, (client) => {
          const channel = `ringfence:freed:{${resource}}`
          return client.evalsha(FREE.sha, 3, resource, fence, line, owner, token, FENCE_TTL_MS, 'publish', channel)
        }),
      hold: undefined,
      close: async () => undefined,
    }
    await check(lock, clients)
    return lock
  },
}

/** Not public, so from the sources: how the scripts are sent is the engine's own business. */
async function ownScripts() {
  const { runnerImport } = await import('vite')
  const path = new URL('../src/engines/redis/scripts.ts', import.meta.url).pathname
  return (await runnerImport(path, { configFile: false })).module
}

/** The engine may have changed what it sends: then this row would measure something else. */
async function check(lock, clients) {
  const there = async () => Promise.all(clients.map((client) => client.exists('scripts-alone')))
  const handle = await lock.acquire('scripts-alone', 10_000)
  const [taken, freed] = [await there(), await lock.release(handle).then(there)]
  if (taken.includes(0) || freed.includes(1)) throw new Error('the scripts of the engine take other arguments now')
}

/** @param {number} [retryMs] @returns {Library} */
function redlock5(retryMs) {
  return {
    ...peer('redlock 5 beta', retryMs),
    async open(clients) {
      const { default: Redlock } = await import('redlock')
      return redlockLike((settings) => new Redlock(clients, settings), retryMs)
    },
  }
}

/** @param {number} [retryMs] @returns {Library} */
function sesamecare(retryMs) {
  return {
    ...peer('@sesamecare-oss/redlock', retryMs),
    async open(clients) {
      const { Redlock } = await import('@sesamecare-oss/redlock')
      return redlockLike((settings) => new Redlock(clients, settings), retryMs)
    },
  }
}

function peer(name, retryMs) {
  const isTuned = retryMs !== undefined
  return { name: isTuned ? name : `${name}, defaults`, peer: true, sends: [], ...(isTuned ? { retryMs } : {}) }
}

/**
 * Their own retries keep a minority's keys while they wait, so that on several nodes rivals block each other until they give
 * up. Tried once and retried out here, each attempt cleans up behind itself, and they get on.
 */
function redlockLike(create, retryMs) {
  const lock = create(retryMs === undefined ? {} : { retryCount: 0 })
  return {
    acquire: (resource, ttlMs, signal) =>
      persistently(() => lock.acquire([resource], ttlMs), 'ExecutionError', retryMs, signal),
    release: (handle) => handle.release(),
    hold: (resource, ttlMs) => heldBy((work) => lock.using([resource], ttlMs, { retryCount: 0 }, work)),
    close: async () => undefined,
  }
}

/** With its defaults a library waits by itself, until it gives up; then it is asked again at once. */
async function persistently(attempt, refusal, retryMs, signal) {
  for (;;) {
    try {
      return await attempt()
    } catch (error) {
      // The errors of redis-semaphore don't say their name.
      if (error?.name !== refusal && error?.constructor.name !== refusal) throw error
      signal?.throwIfAborted()
      if (retryMs !== undefined) await sleep(retryMs * (0.5 + Math.random()), undefined, { signal })
    }
  }
}

/** @param {number} [retryMs] @returns {Library} */
function redisSemaphore(retryMs) {
  return {
    ...peer('redis-semaphore', retryMs),
    sends: ['set'],
    async open(clients) {
      const { Mutex, RedlockMutex } = await import('redis-semaphore')
      const mutex = (resource, ttlMs) => {
        const waiting = retryMs === undefined ? {} : { acquireTimeout: 300_000, retryInterval: retryMs }
        const options = { ...waiting, lockTimeout: ttlMs }
        return clients.length === 1
          ? new Mutex(clients[0], resource, options)
          : new RedlockMutex(clients, resource, options)
      }
      return {
        async acquire(resource, ttlMs, signal) {
          const lock = mutex(resource, ttlMs)
          if (retryMs !== undefined) await lock.acquire(signal)
          else await persistently(() => lock.acquire(signal), 'TimeoutError', undefined, signal)
          return lock
        },
        release: (lock) => lock.release(),
        async hold(resource, ttlMs) {
          const lock = mutex(resource, ttlMs)
          await lock.acquire()
          return () => lock.release()
        },
        close: async () => undefined,
      }
    },
  }
}

/** @param {number} [retryMs] @returns {Library} */
function redlockUniversal(retryMs) {
  return {
    ...peer('redlock-universal', retryMs),
    sends: ['set', 'script|load'],
    async open(clients) {
      const { createLock, createRedlock, IoredisAdapter } = await import('redlock-universal')
      const adapters = clients.map((client) => new IoredisAdapter(client))
      const [tuned, lean] =
        retryMs === undefined ? [] : [{ retryAttempts: 0 }, { performance: /** @type {const} */ ('lean') }]
      const lockOf = (key, ttl) => {
        if (clients.length > 1) return createRedlock({ key, ttl, adapters, ...tuned })
        return createLock({ key, ttl, adapter: adapters[0], ...tuned, ...lean })
      }
      return {
        async acquire(resource, ttlMs, signal) {
          const lock = lockOf(resource, ttlMs)
          return { lock, handle: await persistently(() => lock.acquire(), 'LockAcquisitionError', retryMs, signal) }
        },
        release: ({ lock, handle }) => lock.release(handle),
        hold: (resource, ttlMs) => heldBy((work) => lockOf(resource, ttlMs).using(work)),
        close: async () => undefined,
      }
    },
  }
}

/** For libraries that renew only while a function runs. */
function heldBy(using) {
  return new Promise((acquired, failed) => {
    const done = using(() => new Promise((end) => acquired(() => (end(), done))))
    done.catch(failed)
  })
}

const PEERS = [redlock5, sesamecare, redisSemaphore, redlockUniversal]

/** With the retry delays that serve them best; without contention these don't matter. @type {readonly Library[]} */
export const peers = PEERS.map((make) => tuned(make(1), 1, 1))
/** As they come. @type {readonly Library[]} */
export const defaultPeers = PEERS.map((make) => make())

/** The same library; a peer with the delay that serves it best there. @param {Library} library */
export function tuned(library, processes, nodes) {
  if (library.retryMs === undefined) return library
  const index = PEERS.findIndex((make) => make(1).name === library.name)
  return PEERS[index](bestDelay(library.name, processes, nodes))
}

/** A library by its name, or by what is left of it after it was sent to another process. @param {Partial<Library>} described */
export function libraryOf({ name = 'ringfence', from, retryMs }) {
  if (from !== undefined) return ringfenceFrom(name, from)
  const known = [bare, ringfence, scriptsAlone, ...peers, ...defaultPeers]
  const index = peers.findIndex((each) => each.name === name)
  if (index >= 0 && retryMs !== undefined) return PEERS[index](retryMs)
  const found = known.find((library) => library.name === name)
  if (found === undefined)
    throw new Error(`no library is called ${name}; there are ${known.map((l) => l.name).join(', ')}`)
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

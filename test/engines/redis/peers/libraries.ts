import { setTimeout as pause } from 'node:timers/promises'
import { Redlock as SesameRedlock } from '@sesamecare-oss/redlock'
import type { Redis } from 'ioredis'
import { Mutex, RedlockMutex } from 'redis-semaphore'
// @ts-expect-error Its package.json hides its types.
import Redlock from 'redlock'
import { createLock, createRedlock, IoredisAdapter } from 'redlock-universal'

/** A lock of another library: as its users have it, with the time between two attempts that it has by default. */
export interface PeerLock {
  /** One attempt; what gives it back, or undefined when someone else has it. */
  attempt(): Promise<(() => Promise<unknown>) | undefined>
  /** Attempts until it is ours. */
  acquire(): Promise<() => Promise<unknown>>
  /** The same by the library's own retries. */
  retry(): Promise<() => Promise<unknown>>
}

export interface Library {
  readonly name: string
  /** What its keys begin with. */
  readonly prefix: string
  open(clients: readonly Redis[], resource: string, ttlMs: number): PeerLock
}

/** Retries enough for any test. */
const MANY = 1000

/** @param retryMs how long it sleeps between two attempts by default; anything up to half more or less */
function polling(retryMs: number, attempt: PeerLock['attempt'], retry: PeerLock['retry']): PeerLock {
  return {
    attempt,
    retry,
    async acquire() {
      for (;;) {
        const release = await attempt()
        if (release !== undefined) return release
        await pause(retryMs * (0.5 + Math.random()))
      }
    },
  }
}

interface RedlockLike {
  acquire(resources: string[], ttlMs: number): Promise<{ release(): Promise<unknown> }>
}

/** One attempt each: their own retries keep a minority's keys meanwhile, and so block each other without us already. */
function redlockLike(
  make: (options: { retryCount: number }) => RedlockLike,
  resource: string,
  ttlMs: number,
): PeerLock {
  const [once, often] = [make({ retryCount: 0 }), make({ retryCount: MANY })]
  return polling(
    200,
    async () => {
      const held = await once.acquire([resource], ttlMs).catch(unless('ExecutionError', 'ResourceLockedError'))
      return held && (() => held.release())
    },
    async () => {
      const held = await often.acquire([resource], ttlMs)
      return () => held.release()
    },
  )
}

function unless(...names: string[]): (error: unknown) => undefined {
  return (error) => {
    if (!(error instanceof Error) || !names.includes(error.name)) throw error
  }
}

export const LIBRARIES: readonly Library[] = [
  {
    name: 'redlock 5 beta',
    prefix: '',
    open: (clients, ...lock) => redlockLike((options) => new Redlock(clients, options) as RedlockLike, ...lock),
  },
  {
    name: '@sesamecare-oss/redlock',
    prefix: '',
    open: (clients, ...lock) => redlockLike((options) => new SesameRedlock([...clients], options), ...lock),
  },
  {
    name: 'redlock-universal',
    prefix: '',
    open(clients, key, ttl) {
      const adapters = clients.map((client) => new IoredisAdapter(client))
      const [adapter] = adapters
      const [once, often] = [0, MANY].map((retryAttempts) =>
        clients.length === 1
          ? createLock({ key, ttl, retryAttempts, adapter: adapter! })
          : createRedlock({ key, ttl, retryAttempts, adapters }),
      )
      return polling(
        100,
        async () => {
          const handle = await once!.acquire().catch(unless('LockAcquisitionError'))
          return handle && (() => once!.release(handle))
        },
        async () => {
          const handle = await often!.acquire()
          return () => often!.release(handle)
        },
      )
    },
  },
  {
    name: 'redis-semaphore',
    prefix: 'mutex:',
    open(clients, resource, ttlMs) {
      const [client] = clients
      const mutex = (acquireAttemptsLimit: number): Mutex | RedlockMutex => {
        const options = { lockTimeout: ttlMs, refreshInterval: 0, acquireTimeout: ttlMs, acquireAttemptsLimit }
        return clients.length === 1
          ? new Mutex(client!, resource, options)
          : new RedlockMutex([...clients], resource, options)
      }
      return polling(
        10,
        async () => {
          const once = mutex(1)
          return (await once.tryAcquire()) ? () => once.release() : undefined
        },
        async () => {
          const often = mutex(Number.POSITIVE_INFINITY)
          await often.acquire()
          return () => often.release()
        },
      )
    },
  },
]

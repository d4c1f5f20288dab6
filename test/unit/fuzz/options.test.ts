import * as fc from 'fast-check'
import { Redis } from 'ioredis'
import { afterAll, describe, expect, test } from 'vitest'
import { ManualClock } from '../../../harness/manual-clock.ts'
import { dashboardSettings } from '../../../src/dashboard/server/options.ts'
import { consul } from '../../../src/engines/consul/index.ts'
import { etcd } from '../../../src/engines/etcd/index.ts'
import { file } from '../../../src/engines/file/index.ts'
import { mariadb } from '../../../src/engines/mariadb/index.ts'
import { memory } from '../../../src/engines/memory.ts'
import { mongodb } from '../../../src/engines/mongodb/index.ts'
import { postgres, postgresAdvisory, withAdvisoryLock } from '../../../src/engines/postgres/index.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { zookeeper } from '../../../src/engines/zookeeper/index.ts'
import {
  casGuard,
  fencedHandler,
  fencedMiddleware,
  fileGuard,
  mariadbGuard,
  memoryGuard,
  mongodbGuard,
  objectStore,
  postgresGuard,
  redisGuard,
} from '../../../src/guards/index.ts'
import { createLocks, type Locks } from '../../../src/index.ts'
import { always, FUZZ_TIMEOUT_MS } from './for-so-long.ts'

/** All that options are called. Each object has some that it may have, and most of them with a value of the wrong kind. */
const NAMES = [
  'ttl',
  'wait',
  'renew',
  'maxHold',
  'onDoubt',
  'note',
  'shared',
  'signal',
  'reentrant',
  'label',
  'handOver',
]
  .concat(['observe', 'clock', 'random', 'atLeast', 'atMost', 'runs', 'token', 'owner', 'prefix', 'requestTimeout'])
  .concat(['drift', 'fenceTtl', 'replicas', 'within', 'maxTtl', 'restart', 'table', 'createTable', 'listen', 'auth'])
  .concat(['collection', 'username', 'password', 'tls', 'fetch', 'lockDelay', 'sessionTtlMin', 'datacenter', 'path'])
  .concat([
    'namespace',
    'node',
    'acl',
    'deadHolder',
    'key',
    'resource',
    'engine',
    'maxToken',
    'url',
    'fenceIn',
    'every',
  ])
  .concat(['fenceHeader', 'headers', 'isolation', 'readToken', 'writeToken', 'origins', 'onAudit', 'whenIdle'])
  .concat(['streams', 'history', 'redact'])
const value = fc.oneof(
  fc.constantFrom<unknown>(undefined, null, true, false, 0, 1, -1, 0.5, 5n, '', 'x', '1s', '10d', 1e300, Number.NaN),
  fc.constantFrom<unknown>(Infinity, 'auto', 'never', 'keep', 'stop', 'creator', 'body', 'serializable', '/a', 'a.b'),
  fc.constantFrom<unknown>(Symbol('x'), () => 1, new Date(Number.NaN), new AbortController(), Object.create(null)),
  fc.constantFrom<unknown>({ count: 1 }, { time: '1s' }, { ca: 'x' }, { scheme: 'digest', auth: 'a:b' }, ['x'], [null]),
  fc.string({ maxLength: 20 }),
  fc.anything({ withNullPrototype: true, withBigInt: true, withDate: true, withMap: true, withTypedArray: true }),
)

/** `names`: those that it takes. */
const optionsOf = (names: readonly string[]): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 8, arbitrary: fc.dictionary(fc.constantFrom(...names), value, { maxKeys: 3 }) },
    fc.dictionary(fc.oneof(fc.constantFrom(...NAMES), fc.string({ maxLength: 8 })), value, { maxKeys: 2 }),
    value,
  )

/** What is wrong is told by name, and nothing else is thrown. Returns whether it works. */
async function worksOrIsTold(call: () => unknown): Promise<boolean> {
  try {
    await call()
    return true
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof RangeError) || !/\bexpected /.test(error.message)) throw error
    return false
  }
}

/** It has not connected and never will. */
const client = (): Redis => new Redis({ lazyConnect: true })
const clients = [client(), client(), client()].map((one, index) =>
  Object.assign(one, { options: { ...one.options, port: index + 1 } }),
)
const sql = { query: () => Promise.resolve([]), transaction: () => Promise.resolve() }
const nothing = (): Promise<never> => new Promise(() => undefined)
const mongoDb = {
  databaseName: 'app',
  client: { startSession: nothing },
  collection: () => ({}),
  command: nothing,
  admin: () => ({}),
}
const rules = [{ permission: 31, id: { scheme: 'world', id: 'anyone' } }]
const driver = { createClient: () => ({}), ACL: { OPEN_ACL_UNSAFE: rules, CREATOR_ALL_ACL: rules } }
afterAll(() => {
  for (const one of clients) one.disconnect()
})

type Make = (options: never) => unknown
const COMMON = ['requestTimeout', 'drift', 'clock', 'random']
const TABLE = [...COMMON, 'table', 'createTable']

/** `valid`: what it can be made with. */
const FACTORIES: Readonly<Record<string, readonly [names: readonly string[], make: Make, valid?: unknown]>> = {
  memory: [['clock'], (options) => memory(options)],
  redis: [[...COMMON, 'prefix', 'fenceTtl', 'replicas', 'within'], (options) => redis(clients[0], options)],
  redlock: [[...COMMON, 'prefix', 'fenceTtl', 'maxTtl', 'restart'], (options) => redlock(clients, options)],
  postgres: [[...TABLE, 'listen'], (options) => postgres(sql, options)],
  postgresAdvisory: [[...TABLE, 'listen'], (options) => postgresAdvisory(nothing, options)],
  mariadb: [TABLE, (options) => mariadb(sql, options)],
  mongodb: [[...COMMON, 'collection'], (options) => mongodb(mongoDb as never, options)],
  etcd: [
    ['prefix', 'username', 'password', 'tls', 'requestTimeout', 'fetch', 'clock', 'random'],
    (options) => etcd('https://127.0.0.1:1', options),
  ],
  consul: [
    ['prefix', 'token', 'tls', 'requestTimeout', 'fetch', 'lockDelay', 'sessionTtlMin', 'datacenter', 'node', 'clock'],
    (options) => consul('https://127.0.0.1:1', options),
  ],
  zookeeper: [
    ['path', 'maxTtl', 'auth', 'acl', 'requestTimeout', 'clock'],
    (options) => zookeeper(driver, '127.0.0.1:1', options),
  ],
  file: [['requestTimeout', 'deadHolder', 'clock', 'random'], (options) => file('/nowhere/locks.db', options)],
  'etcd, of its URLs': [['x'], (urls) => etcd(urls), 'http://127.0.0.1:1'],
  'consul, of its URL': [['x'], (url) => consul(url), ['http://127.0.0.1:1']],
  'zookeeper, of its servers': [['x'], (servers) => zookeeper(driver, servers), 'a:1,b:2/c'],
  memoryGuard: [COMMON, (options) => memoryGuard(new Map(), options)],
  redisGuard: [[...COMMON, 'prefix', 'observe'], (options) => redisGuard(clients[0], options)],
  postgresGuard: [[...COMMON, 'table', 'createTable', 'isolation'], (options) => postgresGuard(sql as never, options)],
  mariadbGuard: [[...COMMON, 'table', 'createTable', 'isolation'], (options) => mariadbGuard(sql as never, options)],
  mongodbGuard: [[...COMMON, 'collection', 'observe'], (options) => mongodbGuard(mongoDb as never, options)],
  casGuard: [[...COMMON, 'key'], (options) => casGuard({ read: nothing, write: nothing }, options)],
  fileGuard: [COMMON, (options) => fileGuard('/nowhere/fences.db', options)],
  objectStore: [
    ['url', 'fetch', 'fenceIn', 'fenceHeader', 'headers'],
    (options) => objectStore(options),
    { url: String },
  ],
  fencedHandler: [
    ['resource', 'engine', 'maxToken', 'clock'],
    (options) => fencedHandler(memoryGuard(), options, () => new Response()),
    { resource: String },
  ],
  fencedMiddleware: [
    ['resource', 'engine', 'maxToken', 'clock'],
    (options) => fencedMiddleware(memoryGuard(), options),
    { resource: String },
  ],
  // Not the dashboard itself, whose page is built.
  dashboard: [
    [
      'path',
      'readToken',
      'writeToken',
      'auth',
      'origins',
      'onAudit',
      'every',
      'whenIdle',
      'streams',
      'runs',
      'history',
    ],
    (options) => dashboardSettings(options),
    {},
  ],
  withAdvisoryLock: [['wait', 'clock'], (options) => withAdvisoryLock(sql as never, 'a', async () => 1, options)],
}

describe('options', () => {
  test.each(Object.entries(FACTORIES))(
    '%s: whatever the options are, it is made, or the error says what was expected',
    { timeout: FUZZ_TIMEOUT_MS },
    async (_name, [names, make, valid]) => {
      expect(await worksOrIsTold(() => make(valid as never))).toBe(true)
      await always(optionsOf(names), { runs: 60, part: 1 / 40 }, (options) =>
        worksOrIsTold(() => make(options as never)),
      )
    },
  )

  test('createLocks: they work, or the error says what was expected', { timeout: FUZZ_TIMEOUT_MS }, async () => {
    const names = ['ttl', 'wait', 'renew', 'maxHold', 'onDoubt', 'note', 'reentrant', 'label', 'handOver', 'observe']
    const seen = new Set<boolean>()
    await always(optionsOf([...names, 'clock', 'random']), { runs: 300, part: 1 / 10 }, async (options) => {
      const clock = new ManualClock()
      const works = await worksOrIsTold(async () => {
        const given = typeof options === 'object' && options !== null ? { clock, ...options } : options
        const locks = createLocks(memory({ clock }), given as never)
        expect(await locks.using('a', () => 5)).toBe(5)
        await locks.close()
      })
      seen.add(works)
    })
    expect(seen).toEqual(new Set([true, false]))
  })

  const CALLS: Readonly<Record<string, (locks: Locks, options: never) => Promise<unknown>>> = {
    acquire: (locks, options) => locks.acquire('a', options),
    tryAcquire: (locks, options) => locks.tryAcquire('a', options),
    using: (locks, options) => locks.using('a', options, () => 1),
    elect: (locks, options) => locks.elect('a', options, () => 1),
    once: (locks, options) => locks.once('a', options, () => 1),
    'acquire of a permit': (locks, options) => locks.semaphore('s', 2).acquire(options),
    'tryAcquire of a permit': (locks, options) => locks.semaphore('s', 2).tryAcquire(options),
    'using of a permit': (locks, options) => locks.semaphore('s', 2).using(options, () => 1),
    semaphore: async (locks, options) => locks.semaphore(options, 2).acquire(),
    'semaphore, of its permits': async (locks, permits) => locks.semaphore('s', permits).acquire(),
    adopt: (locks, options) => locks.adopt({} as never, options),
    'adopt, of a ticket': (locks, ticket) => locks.adopt(ticket),
    'acquire, of names': (locks, names) => locks.acquire(names),
    'extend of a lease': async (locks, ttl) => (await locks.acquire('a')).extend(ttl),
  }

  test.each(Object.entries(CALLS))(
    '%s: whatever the options are, it works, or the error says what was expected, and no timer is left',
    { timeout: FUZZ_TIMEOUT_MS },
    async (_name, call) => {
      const names = ['ttl', 'wait', 'renew', 'maxHold', 'onDoubt', 'note', 'shared', 'signal', 'reentrant', 'atLeast']
      await always(optionsOf([...names, 'atMost', 'runs']), { runs: 60, part: 1 / 40 }, async (options) => {
        const clock = new ManualClock()
        const locks = createLocks(memory({ clock }), { clock })
        await worksOrIsTold(() => call(locks, options as never))
        await locks.close()
        await clock.advance(1000)
        expect(clock.timers).toBe(0)
      })
    },
  )
})

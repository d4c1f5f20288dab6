import { inspect } from 'node:util'
import { Cluster, Redis } from 'ioredis'
// @ts-expect-error -- its package.json does not say where its types are
import UntypedRedlock from 'redlock'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startProxy } from '../../harness/faults/proxy.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import Redlock, { ExecutionError, Lock, Redlock as Named, ResourceLockedError } from '../../src/redlock/index.ts'
import { sharedLocks } from '../../src/redlock/shared-locks.ts'

/** Of the same shape: a test of the types says so. */
const RealRedlock = UntypedRedlock as typeof Redlock

let server: RedisServer
let group: Awaited<ReturnType<typeof startRedisNodes>>
let client: Redis
let nodes: Redis[]
const opened: Redis[] = []
let count = 0
/** A name that no other test has. */
let name: string

function connect(port: number, options: object = {}): Redis {
  const redis = new Redis({ host: '127.0.0.1', port, ...options })
  redis.on('error', () => undefined)
  opened.push(redis)
  return redis
}

beforeAll(async () => {
  ;[server, group] = await Promise.all([startRedis(), startRedisNodes(3)])
  client = connect(server.port)
  nodes = group.nodes.map(({ port }) => connect(port))
})
afterAll(async () => {
  for (const redis of opened) redis.disconnect()
  await Promise.all([server.stop(), group.stop()])
})
beforeEach(() => {
  name = `order:${++count}`
})

const HOUR_MS = 3_600_000

/** What a call is rejected with, which must be an `ExecutionError`. */
async function failure(call: Promise<unknown>): Promise<ExecutionError> {
  const error = await call.then(
    () => new Error('it was not rejected'),
    (error: unknown) => error,
  )
  expect(error).toBeInstanceOf(ExecutionError)
  return error as ExecutionError
}

function votersOf(lock: Lock<Redis>): Promise<Redis[]> {
  return lock.attempts[0]!.then(({ votesFor }) => [...votesFor])
}

async function votesAgainst({ attempts }: ExecutionError): Promise<Error[]> {
  const stats = await Promise.all(attempts)
  return stats.flatMap(({ votesAgainst }) => [...votesAgainst.values()])
}

describe.each(['one server', 'a quorum'])('on %s', (where) => {
  const clients = (): Redis[] => (where === 'one server' ? [client] : nodes)

  test('a lock is acquired, extended and released, with the votes of all nodes', async () => {
    const redlock = new Redlock(clients())
    const before = Date.now()
    const lock = await redlock.acquire([name], 10_000)
    expect(lock.resources).toEqual([name])
    expect(lock.fencingToken).toBeGreaterThan(0n)
    expect(lock.expiration).toBeGreaterThan(before + 9000)
    expect(lock.expiration).toBeLessThanOrEqual(Date.now() + 9898)
    const { votesFor, votesAgainst, membershipSize, quorumSize } = await lock.attempts[0]!
    for (const redis of redlock.clients) expect(votesFor.has(redis)).toBe(true)
    expect([votesAgainst.size, membershipSize, quorumSize]).toEqual(where === 'a quorum' ? [0, 3, 2] : [0, 1, 1])
    for (const redis of clients()) expect(await redis.get(name)).toBe(lock.value)

    const longer = await lock.extend(20_000)
    expect([lock.expiration, longer.value]).toEqual([0, lock.value])
    expect(longer.expiration).toBeGreaterThan(before + 18_000)
    expect((await longer.attempts[0]!).votesFor.size).toBe(clients().length)
    expect(await failure(lock.extend(1000))).toHaveProperty('message', 'Cannot extend an already-expired lock.')

    const { attempts } = await longer.release()
    expect((await attempts[0]!).votesFor.size).toBe(clients().length)
    for (const redis of clients()) expect(await redis.exists(name)).toBe(0)
    expect(longer.expiration).toBe(0)

    const next = await redlock.acquire([name], 10_000)
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken)
    await next.release()
  })

  test('a resource that is held has as many attempts as the settings say, and error events', async () => {
    const redlock = new Redlock(clients(), { retryCount: 3, retryDelay: 20, retryJitter: 0 })
    const errors: Error[] = []
    redlock.on('error', (error: Error) => errors.push(error))
    const lock = await redlock.acquire([name, `${name}:b`], 10_000)
    const error = await failure(redlock.acquire([`${name}:b`, `${name}:c`], 10_000))
    expect(error.message).toBe('The operation was unable to achieve a quorum during its retry window.')
    expect(error.attempts).toHaveLength(4)
    expect((error.cause as Error).message).toContain('held by')
    for (const vote of await votesAgainst(error)) {
      expect(vote).toBeInstanceOf(ResourceLockedError)
      expect(vote.message).toBe('The operation was applied to: 0 of the 2 requested resources.')
    }
    expect(errors.length).toBeGreaterThan(0)
    for (const told of errors) expect(told).toBeInstanceOf(ResourceLockedError)
    expect((await failure(redlock.acquire([name], 10_000, { retryCount: 0 }))).attempts).toHaveLength(1)
    for (const redis of clients()) expect(await redis.exists(`${name}:c`)).toBe(0)
    await lock.release()
  })

  test('a call with retryCount -1 waits until the lock is released', async () => {
    const redlock = new Redlock(clients(), { retryCount: -1 })
    const lock = await redlock.acquire([name], 30_000)
    const other = new Redlock(clients().map((redis) => connect(redis.options.port!)))
    const waiting = other.acquire([name], 30_000, { retryCount: -1 })
    await until(() => clients()[0]!.exists(`ringfence:line:{${name}}`), { what: 'a place in line' })
    await lock.release()
    const next = await waiting
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken)
    const votes = await next.attempts.at(-1)!
    expect(votes.votesFor.size).toBeGreaterThanOrEqual(votes.quorumSize)
    await next.release()
  })

  test('what was lost or released before cannot be released or extended', async () => {
    const redlock = new Redlock(clients())
    const lock = await redlock.acquire([name], 10_000)
    await Promise.all(clients().map((redis) => redis.del(name)))
    const notExtended = await failure(lock.extend(10_000))
    const notReleased = await failure(lock.release())
    for (const error of [notExtended, notReleased]) {
      expect(error.attempts).toHaveLength(1)
      for (const vote of await votesAgainst(error)) expect(vote).toBeInstanceOf(ResourceLockedError)
    }
    const next = await redlock.acquire([name], 10_000)
    await next.release()
    await failure(next.release())
  })

  test('real redlock and this one keep each other out', async () => {
    const real = new RealRedlock(clients(), { retryCount: 0 })
    const ours = new Redlock(clients(), { retryCount: 0 })
    const theirs = await real.acquire([name], 30_000)
    await failure(ours.acquire([name], 10_000))
    const waiting = ours.acquire([name], 10_000, { retryCount: -1 })
    await theirs.release()
    const lock = await waiting
    await expect(real.acquire([name], 10_000)).rejects.toThrow('unable to achieve a quorum')
    await lock.release()
    await (await real.acquire([name], 10_000)).release()
  })

  test('the properties of a lock are its own, as those of redlock are, and nothing else is shown', async () => {
    const [ours, theirs] = [new Redlock(clients()), new RealRedlock(clients())]
    const lock = await ours.acquire([name], 10_000)
    const copy = Object.fromEntries(Object.entries(lock))
    expect(copy).toMatchObject({ resources: [name], value: lock.value, expiration: lock.expiration })
    expect(inspect(lock, { depth: 0 })).toMatch(/^Lock \{/)
    expect(inspect(lock)).toContain(`expiration: ${lock.expiration}`)
    await lock.release()
    expect(lock.expiration).toBe(0)
    const real = await theirs.acquire([name], 10_000)
    expect(Object.keys(copy).sort()).toEqual(Object.keys(real).sort())
    await real.release()
  })

  test('a lock that was made by hand is released by its value', async () => {
    const redlock = new Redlock(clients())
    const { value, expiration } = await redlock.acquire([name], 10_000)
    const copy = new Lock(redlock, [name], value, [], expiration)
    const longer = await copy.extend(20_000)
    expect(await clients()[0]!.pttl(name)).toBeGreaterThan(15_000)
    expect(() => longer.fencingToken).toThrow('expected a lock that acquire has returned')
    await longer.release()
    expect(await clients()[0]!.exists(name)).toBe(0)
  })

  test('using extends the lock while the routine runs, and gives its value', async () => {
    const redlock = new Redlock(clients())
    const [redis] = clients() as [Redis]
    const value = await redlock.using([name], 3000, async (signal) => {
      const first = await redis.get(name)
      await until(async () => (await redis.pttl(name)) < 2500, { what: 'time that passes' })
      await until(async () => (await redis.pttl(name)) > 2600, { what: 'the extension' })
      expect([signal.aborted, signal.error]).toEqual([false, undefined])
      expect(await redis.get(name)).toBe(first)
      return first
    })
    expect(value).toMatch(/^[0-9a-f]{32}@/)
    expect(await redis.exists(name)).toBe(0)
  })

  test('using aborts when the lock is lost, and rejects although the routine succeeds', async () => {
    const redlock = new Redlock(clients())
    let seen: unknown
    const call = redlock.using([name], 3000, { retryCount: 0 }, async (signal) => {
      await Promise.all(clients().map((redis) => redis.del(name)))
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      seen = signal.error
      return 'done'
    })
    const error = await failure(call)
    expect(error).toBe(seen)
    expect((error.cause as Error).message).toContain('no longer ours')
  })
})

test('the error of a routine is the error of using', async () => {
  const redlock = new Redlock([client])
  const call = redlock.using([name], 1000, async () => {
    await client.del(name)
    throw new Error('no milk')
  })
  await expect(call).rejects.toThrow('no milk')
})

test('the settings and checks are those of redlock', async () => {
  const redlock = new Redlock([client], { retryCount: 2 })
  const real = new RealRedlock([client], { retryCount: 2 })
  expect(redlock.settings).toEqual(real.settings)
  expect(Redlock).toBe(Named)
  for (const make of [() => new Redlock([]), () => new RealRedlock([])])
    expect(make).toThrow('Redlock must be instantiated with at least one redis client.')
  const wholeNumber = 'Duration must be an integer value in milliseconds.'
  for (const either of [redlock, real]) {
    await expect(either.acquire([name], 100.5)).rejects.toThrow(wholeNumber)
    await expect(either.using([name], 550, async () => 1)).rejects.toThrow('must be at least 100ms greater than')
    await expect(either.using([name], 1000, {})).rejects.toThrow('routine is not a function')
  }
  expect(() => new Redlock([client], { retryCount: -2 })).toThrow('retryCount: expected a number from -1 on, got -2')
})

test('using extends earlier than at a third if the threshold says so', async () => {
  const redlock = new Redlock([client], { automaticExtensionThreshold: 59_500 })
  await redlock.using([name], 60_000, async () => {
    await until(async () => (await client.pttl(name)) < 59_700, { what: 'time that passes' })
    await until(async () => (await client.pttl(name)) > 59_800, { what: 'the extension', everyMs: 5 })
  })
})

test('a call with a larger driftFactor gets an earlier expiration', async () => {
  const redlock = new Redlock([client])
  const lock = await redlock.acquire([name], 10_000, { driftFactor: 0.4 })
  expect(lock.expiration).toBeLessThanOrEqual(Date.now() + 5998)
  await lock.release()
})

test('two clients decide together, and one of them alone does not', async () => {
  const redlock = new Redlock(nodes.slice(0, 2), { retryCount: 0 })
  const lock = await redlock.acquire([name], 10_000)
  expect((await lock.attempts[0]!).votesFor.size).toBe(2)
  await lock.release()
  await nodes[1]!.set(name, 'somebody')
  const error = await failure(redlock.acquire([name], 10_000))
  const { votesAgainst } = await error.attempts[0]!
  expect([...votesAgainst.keys()]).toEqual([nodes[1]])
  await until(async () => (await nodes[0]!.exists(name)) === 0, { what: 'the vote that was withdrawn' })
  await nodes[1]!.del(name)
})

describe('a lock that is longer than a node sits out', () => {
  const YEARS_MS = Math.floor(Number.MAX_SAFE_INTEGER / 10)

  test('is taken for its whole time, also for 28,500 years', async () => {
    const redlock = new Redlock(nodes)
    const lock = await redlock.acquire([name], YEARS_MS)
    const longer = await lock.extend(3 * YEARS_MS)
    const left = await Promise.all((await votersOf(longer)).map((redis) => redis.pttl(name)))
    for (const ms of left) expect(ms).toBeGreaterThan(2.9 * YEARS_MS)
    expect(longer.expiration).toBeGreaterThan(Date.now() + 2.9 * YEARS_MS)
    await longer.release()
  })

  test('is put back on a node that has forgotten it, and keeps its end', async () => {
    const redlock = new Redlock(nodes, { maxTtl: 5000 })
    const lock = await redlock.acquire([name], HOUR_MS)
    const end = Date.now() + HOUR_MS
    await nodes[0]!.del(name)
    await until(() => nodes[0]!.exists(name), { what: 'the key' })
    expect(await nodes[0]!.get(name)).toBe(lock.value)
    expect(lock.expiration).toBeGreaterThan(Date.now())
    expect(Date.now() + (await nodes[1]!.pttl(name))).toBeLessThanOrEqual(end + 1000)
    await lock.release()
  })

  test('counts as expired when no quorum has it any more, and the instance says so', async () => {
    const redlock = new Redlock(nodes, { maxTtl: 5000, retryCount: 0 })
    const lock = await redlock.acquire([name], HOUR_MS)
    const told = new Promise<Error>((resolve) => redlock.on('clientError', resolve))
    await Promise.all(nodes.map((redis) => redis.del(name)))
    expect((await told).message).toContain('no longer ours')
    expect(lock.expiration).toBe(0)
    expect(await failure(lock.extend(1000))).toHaveProperty('message', 'Cannot extend an already-expired lock.')
  })
})

test('instances with the same clients share one engine: a release of one is handed to a waiter of the other', async () => {
  const lock = await new Redlock([client]).acquire([name], 30_000)
  const waiting = new Redlock([client], { retryCount: -1 }).acquire([name], 30_000)
  await lock.release()
  const next = await waiting
  // An engine of its own would have asked the server before, and would have been refused.
  expect(next.attempts).toHaveLength(1)
  expect((await next.attempts[0]!).votesFor).toEqual(new Set([client]))
  await next.release()
  const terms = { driftFactor: 0.01, prefix: undefined, maxTtl: undefined }
  expect(sharedLocks([client], terms)).toBe(sharedLocks([client], terms))
  const ofAll = sharedLocks(nodes, terms)
  expect(ofAll).not.toBe(sharedLocks(nodes, { ...terms, maxTtl: 5000 }))
  expect(sharedLocks(nodes.toReversed(), terms)).toBe(ofAll)
  expect(sharedLocks(nodes.slice(0, 2), terms)).not.toBe(ofAll)
})

test('a second release says by its cause that the lock was released', async () => {
  const lock = await new Redlock([client]).acquire([name], 30_000)
  await lock.release()
  expect((await failure(lock.release())).cause).toMatchObject({ code: 'LEASE_LOST', reason: 'released' })
  const taken = await new Redlock([client]).acquire([name], 30_000)
  await client.del(name)
  expect((await failure(taken.release())).cause).toMatchObject({ reason: 'unnoticed' })
  const gone = await new Redlock([client]).acquire([name], 30_000)
  await client.del(name)
  expect((await failure(gone.extend(30_000))).cause).toMatchObject({ reason: 'stolen' })
})

test('one client twice is refused; redlock takes it for one vote and says nothing', () => {
  expect(new RealRedlock([client, client] as never).clients.size).toBe(1)
  expect(() => new Redlock([nodes[0]!, client, nodes[0]!])).toThrow(
    'clients[2]: expected a client of its own, got the same object as clients[0]; it would be one vote, so write each client once',
  )
})

test('quit closes the clients and releases nothing', async () => {
  const own = connect(server.port)
  const redlock = new Redlock([own], { retryCount: 1, retryDelay: 10 })
  // It may take longer than that to connect.
  const lock = await redlock.acquire([name], 30_000, { retryDelay: 10_000 })
  await redlock.quit()
  expect(await client.get(name)).toBe(lock.value)
  const error = await failure(redlock.acquire([`${name}:b`], 1000))
  expect(error.attempts).toHaveLength(2)
  for (const vote of await votesAgainst(error)) expect(vote.message).toBe('Connection is closed.')
  await failure(lock.release())
  await client.del(name)
})

test('what redlock takes and this cannot is refused with what to write instead', async () => {
  const withPrefix = connect(server.port, { keyPrefix: 'app:', lazyConnect: true })
  expect(() => new Redlock([withPrefix])).toThrow(
    "new Redlock([client.duplicate({ keyPrefix: '' })], { prefix: 'app:' })",
  )
  const plain = withPrefix.duplicate({ keyPrefix: '', lazyConnect: false })
  opened.push(plain)
  const lock = await new Redlock([plain], { prefix: 'app:' }).acquire([name], 10_000)
  expect(await client.get(`app:${name}`)).toBe(lock.value)
  await lock.release()

  const cluster = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true })
  expect(() => new Redlock([cluster, ...nodes])).toThrow(
    'write new Redlock([cluster]), or take clients of single masters',
  )
  expect(() => new Redlock([client], {}, { acquireScript: (text: string) => text })).toThrow(
    'acquireScript: expected none',
  )
  expect(() => new Redlock(client as never)).toThrow('write new Redlock([client])')
  const redlock = new Redlock([client])
  await expect(redlock.acquire('a name' as never, 1000)).rejects.toThrow('write acquire([name], duration)')
  await expect(redlock.release({} as never)).rejects.toThrow(
    'lock: expected one that acquire has returned, got an object',
  )
  const tooShort = 'duration: expected at least 50 ms, got 10; use 50 or more'
  await expect(redlock.acquire([name], 10)).rejects.toThrow(tooShort)
  const long = await redlock.acquire([name], 10_000)
  await expect(long.extend(10)).rejects.toThrow(tooShort)
  expect(long.expiration).toBeGreaterThan(0)
  await long.release()
})

test.each(['one server', 'a quorum'])(
  'on %s that answers after the retries: a free lock is got, and a held one is asked for as often as by redlock',
  async (where) => {
    const ports = where === 'one server' ? [server.port] : group.nodes.map(({ port }) => port)
    const proxies = await Promise.all(ports.map((port) => startProxy(port)))
    try {
      const far = proxies.map(({ port }) => connect(port))
      const settings = { retryCount: 1, retryDelay: 10, retryJitter: 0 }
      const [redlock, peer] = [new Redlock(far, settings), new RealRedlock(far, settings)]
      // Connections and scripts are there before anything is slow.
      for (const each of [redlock, peer])
        await (await each.acquire([`${name}:first`], 10_000, { retryCount: 100 })).release()
      for (const proxy of proxies) proxy.delay(40)
      const lock = await redlock.acquire([name], 10_000)
      expect(lock.attempts).toHaveLength(1)
      await lock.release()
      for (const redis of where === 'one server' ? [client] : nodes) await redis.set(name, 'somebody')
      let against = 0
      redlock.on('error', () => against++)
      for (const each of [redlock, peer]) {
        const error: unknown = await each.acquire([name], 10_000).catch((error: unknown) => error)
        expect(await Promise.all((error as ExecutionError).attempts)).toHaveLength(2)
      }
      // As many votes as those attempts have: none of them was said twice.
      expect(against).toBe(2 * ports.length)
    } finally {
      for (const proxy of proxies) await proxy.close()
    }
  },
)

import { setTimeout as pause } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Group } from '../../harness/group.ts'
import { freePorts } from '../../harness/ports.ts'
import { startCluster } from '../../harness/servers/redis-cluster.ts'
import { startRedisNodes, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import Redlock, { ExecutionError, ResourceLockedError, type Lock } from '../../src/redlock/index.ts'

// What the 24 tests of redlock 5 are about: nine situations, on one server and on a Cluster, and three on three servers, with the
// durations that they have there. One of the nine has a server of its own, which cannot be reached: it is the same twice. The other three
// have Clusters in a quorum, which is refused.

/** 28,500 years. */
const LONG_MS = Math.floor(Number.MAX_SAFE_INTEGER / 10)
/** How old an answer may be on a busy machine. */
const SLACK_MS = 60_000
/** One attempt, and its ten retries. */
const ATTEMPTS = 11

type Client = Redis | Cluster

let group: Group<RedisServer>
let cluster: Group<RedisServer>
let servers: Redis[]
let clusters: Cluster[]
let tag = 0

beforeAll(async () => {
  ;[group, cluster] = await Promise.all([startRedisNodes(3), startCluster()])
  servers = group.nodes.map(({ host, port }) => new Redis({ host, port }))
  clusters = group.nodes.map(() => new Cluster(cluster.nodes.map(({ host, port }) => ({ host, port }))))
})
afterAll(async () => {
  for (const client of [...servers, ...clusters]) client.disconnect()
  await Promise.all([group.stop(), cluster.stop()])
})

/** Names that no other test has, on one slot of a Cluster. */
function names(...ends: string[]): string[] {
  const own = `{own:${++tag}}`
  return ends.map((end) => own + end)
}

async function expectHeld(client: Client, lock: Pick<Lock, 'resources' | 'value'>, durationMs: number): Promise<void> {
  for (const name of lock.resources) {
    expect(await client.get(name)).toBe(lock.value)
    const left = await client.pttl(name)
    expect(left).toBeLessThanOrEqual(durationMs)
    expect(left).toBeGreaterThan(durationMs - SLACK_MS)
  }
}

async function expectFree(client: Client, resources: readonly string[]): Promise<void> {
  for (const name of resources) expect(await client.get(name)).toBeNull()
}

/** Two of three decide. Until the third has answered as well. */
function all({ attempts }: { readonly attempts: readonly Promise<unknown>[] }): Promise<unknown> {
  return Promise.all(attempts)
}

/** Why the nodes voted against, of a call that made all of its attempts. */
async function votesAgainst(call: Promise<unknown>): Promise<Error[]> {
  const error = await call.catch((error: unknown) => error)
  expect(error).toBeInstanceOf(ExecutionError)
  const { attempts } = error as ExecutionError
  expect(attempts).toHaveLength(ATTEMPTS)
  const votes = (await Promise.all(attempts)).map((stats) => [...stats.votesAgainst.values()])
  for (const ofAttempt of votes) expect(ofAttempt).not.toEqual([])
  return votes.flat()
}

function expectLocked(votes: readonly Error[], resources: number): void {
  for (const vote of votes) {
    expect(vote).toBeInstanceOf(ResourceLockedError)
    expect(vote.message).toBe(`The operation was applied to: 0 of the ${resources} requested resources.`)
  }
}

/** A routine of `using` that outlasts the duration. Resolves with what the key had at its begin, and at its end. */
function outlasting(client: Client, name: string, during: () => void = () => undefined) {
  return async (): Promise<readonly (string | null)[]> => {
    const first = await client.get(name)
    during()
    await pause(400)
    during()
    return [first, await client.get(name)]
  }
}

/** The process may be kept from the processor for the 300 ms of a lock, which is then lost: that says nothing. */
async function untilKept<T extends object>(attempt: () => Promise<T>): Promise<T> {
  const kept = (): Promise<T | undefined> =>
    attempt().catch((error: unknown) => {
      if (error instanceof ExecutionError) return undefined
      throw error
    })
  return until(kept, { what: 'a lock that is kept', withinMs: 30_000 })
}

describe.concurrent.each(['one server', 'a Cluster'])('with %s', (where) => {
  const clientOf = (): Client => (where === 'one server' ? servers[0]! : clusters[0]!)

  test('a duration that is not whole is refused', async () => {
    const refused = new Redlock([clientOf()]).acquire(names('a'), LONG_MS / 1e6 + 0.5)
    await expect(refused).rejects.toThrow('Duration must be an integer value in milliseconds.')
  })

  test.each([[['a']], [['a', 'b']]])('a lock on %j is acquired, extended and released', async (ends) => {
    const client = clientOf()
    const lock = await new Redlock([client]).acquire(names(...ends), LONG_MS)
    await expectHeld(client, lock, LONG_MS)
    const longer = await lock.extend(3 * LONG_MS)
    await expectHeld(client, longer, 3 * LONG_MS)
    await longer.release()
    await expectFree(client, lock.resources)
  })

  test('a lock ends with its duration', async () => {
    const client = clientOf()
    const redlock = new Redlock([client])
    const first = await redlock.acquire(names('a'), 200)
    const next = await redlock.acquire(first.resources, 200, { retryCount: -1 })
    expect(next.value).not.toBe(first.value)
    await until(async () => (await client.get(first.resources[0]!)) === null, { what: 'its end' })
  })

  test.each([
    [['a'], ['a']],
    [
      ['a', 'b'],
      ['b', 'c'],
    ],
  ])('while %j is locked, %j is not', async (held, wanted) => {
    const client = clientOf()
    const redlock = new Redlock([client])
    const [a, b, c] = names('a', 'b', 'c')
    const named = (ends: readonly string[]): string[] => ends.map((end) => ({ a, b, c })[end]!)
    const lock = await redlock.acquire(named(held), LONG_MS)
    await expectHeld(client, lock, LONG_MS)
    expectLocked(await votesAgainst(redlock.acquire(named(wanted), LONG_MS)), wanted.length)
    await expectHeld(client, lock, LONG_MS)
    await expectFree(client, named(wanted.filter((end) => !held.includes(end))))
    await lock.release()
    await expectFree(client, lock.resources)
  })

  test('using keeps the lock of a routine that outlasts its duration', async () => {
    const client = clientOf()
    const [name = ''] = names('a')
    const redlock = new Redlock([client])
    const settings = { automaticExtensionThreshold: 100 }
    const values = await untilKept(() => redlock.using([name], 300, settings, outlasting(client, name)))
    expect(values).toEqual([expect.any(String), values[0]])
    await expectFree(client, [name])
  })

  test('two routines under the same lock run one after the other, each with its own', async () => {
    const client = clientOf()
    const [name = ''] = names('a')
    const redlock = new Redlock([client])
    const settings = { automaticExtensionThreshold: 100 }
    const steps = async (): Promise<{ order: string; values: (readonly (string | null)[])[] }> => {
      let order = ''
      const routines = ['a', 'b'].map((which) => outlasting(client, name, () => (order += which)))
      const values = await Promise.all(routines.map((routine) => redlock.using([name], 300, settings, routine)))
      return { order, values }
    }
    const { order, values } = await untilKept(steps)
    expect(['aabb', 'bbaa']).toContain(order)
    const [[one], [other]] = values as [[string], [string]]
    expect(values).toEqual([
      [one, one],
      [other, other],
    ])
    expect(one).not.toBe(other)
    await expectFree(client, [name])
  })
})

describe.concurrent('with three servers', () => {
  test('a lock is acquired, extended and released on all of them', async () => {
    const lock = await new Redlock(servers).acquire(names('a'), LONG_MS)
    await all(lock)
    for (const server of servers) await expectHeld(server, lock, LONG_MS)
    const longer = await lock.extend(3 * LONG_MS)
    await all(longer)
    for (const server of servers) await expectHeld(server, longer, 3 * LONG_MS)
    await all(await longer.release())
    for (const server of servers) await expectFree(server, lock.resources)
  })

  test('one that says no is outvoted, and keeps what it has', async () => {
    const [a, b, c] = servers as [Redis, Redis, Redis]
    const [name = ''] = names('a')
    await c.set(name, 'other')
    const lock = await new Redlock(servers).acquire([name], LONG_MS)
    await all(lock)
    for (const server of [a, b]) await expectHeld(server, lock, LONG_MS)
    const longer = await lock.extend(3 * LONG_MS)
    await all(longer)
    for (const server of [a, b]) await expectHeld(server, longer, 3 * LONG_MS)
    await all(await longer.release())
    for (const server of [a, b]) await expectFree(server, [name])
    expect([await c.get(name), await c.pttl(name)]).toEqual(['other', -1])
  })

  test('two that say no are a majority, and the third keeps nothing', async () => {
    const [a, b, c] = servers as [Redis, Redis, Redis]
    const [name = ''] = names('a')
    await Promise.all([b.set(name, 'other 1'), c.set(name, 'other 2')])
    const votes = await votesAgainst(new Redlock(servers).acquire([name], LONG_MS))
    expectLocked(
      votes.filter((vote) => vote instanceof ResourceLockedError),
      1,
    )
    await until(async () => (await a.get(name)) === null, { what: 'the vote that was withdrawn' })
    expect([await b.get(name), await c.get(name)]).toEqual(['other 1', 'other 2'])
  })
})

test('a server that cannot be reached is told as such, attempt by attempt', async () => {
  const [port = 0] = await freePorts(1)
  const client = new Redis({ host: '127.0.0.1', port, maxRetriesPerRequest: 0, retryStrategy: () => null })
  client.on('error', () => undefined)
  const votes = await votesAgainst(new Redlock([client]).acquire(names('a'), LONG_MS))
  for (const vote of votes) expect(vote.message).toBe('Connection is closed.')
})

test('with three Clusters it is refused', () => {
  expect(() => new Redlock(clusters)).toThrow('a Cluster fails over by itself and may forget a lock, so it is no vote')
})

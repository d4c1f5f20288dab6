import { setTimeout as pause } from 'node:timers/promises'
import { Long, type MongoClientOptions } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Engine } from '../../../src/engine.ts'
import { startMongodb, type MongodbServer } from '../../../harness/servers/mongodb.ts'
import { granted, held, open, request, type LeaseDocument } from './clients.ts'

let server: MongodbServer

beforeAll(async () => {
  server = await startMongodb({ replicaSet: true })
})

afterAll(() => server.stop())

describe('a token above 2^53 is told to the last digit by a client', () => {
  const clients: Record<string, MongoClientOptions> = {
    'with the defaults': {},
    'that keeps 64-bit numbers as Long': { promoteLongs: false },
    'that gives 64-bit numbers as bigint': { useBigInt64: true },
    'that keeps all values as they come': { promoteValues: false },
    'that gives raw bytes': { raw: true },
  }

  test.each(Object.entries(clients))('%s', async (name, options) => {
    await using opened = open(server.url, {}, options)
    const { client, engine } = opened
    const high = 2n ** 53n + 1n
    const [a, b] = [`${name} a`, `${name} b`]
    await client
      .db('app')
      .collection<LeaseDocument>('ringfence')
      .insertOne({ _id: a, token: Long.fromBigInt(high) })
    const one = await granted(engine, request([a]))
    expect(one.token).toBe(high + 1n)
    expect(await held(engine, a)).toMatchObject([{ token: high + 1n }])
    const next = request([a])
    expect(await engine.handOver!(one, next)).toEqual({ kind: 'granted', token: high + 2n })
    expect(await engine.release({ ...next, token: high + 2n })).toEqual({ ours: true, awaited: 0 })
    const both = await granted(engine, request([a, b]))
    expect(both.token).toBe(high + 3n)
    expect(await held(engine, b)).toMatchObject([{ token: high + 3n }])
    await engine.release(both)
    expect((await granted(engine, request([b]))).token).toBe(high + 4n)
  })
})

test('a counter that a restored backup has made a short number goes on growing as a long one', async () => {
  await using opened = open(server.url)
  const leases = opened.client.db('app').collection<LeaseDocument>('ringfence')
  await leases.insertOne({ _id: 'restored', token: 2 ** 31 - 1 })
  expect((await granted(opened.engine, request(['restored']))).token).toBe(2n ** 31n)
  expect(await leases.countDocuments({ _id: 'restored', token: { $type: 'long' } })).toBe(1)
})

test('names and owners that read like fields or operators are names like others', async () => {
  await using opened = open(server.url)
  const { engine } = opened
  for (const resource of ['$owner', '$$NOW', '{"$gt":""}', 'a.b', '__proto__']) {
    const lease = await granted(engine, request([resource], { owner: `$until of ${resource}` }))
    expect(await held(engine, resource)).toMatchObject([{ resource, owner: lease.owner }])
    expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
    expect(await engine.acquire(request([resource], { owner: '$owner' }))).toMatchObject({ kind: 'refused' })
    expect(await engine.release(lease)).toMatchObject({ ours: true })
  }
})

test('an attempt at several resources of which one is held leaves the others free, and their counters as they were', async () => {
  await using opened = open(server.url)
  const { engine } = opened
  const free = await granted(engine, request(['part 1']))
  await engine.release(free)
  const blocker = await granted(engine, request(['part 2']))
  const outcome = await engine.acquire(request(['part 1', 'part 2', 'part 3']))
  expect(outcome).toMatchObject({ kind: 'refused', reason: 'held', holder: blocker.owner })
  expect((await held(engine)).filter(({ resource }) => resource.startsWith('part'))).toHaveLength(1)
  expect((await granted(engine, request(['part 1']))).token).toBe(free.token + 1n)
})

test('a counter that others have spoilt is told, no retry cures it, and what was taken before it is let go of', async () => {
  await using opened = open(server.url)
  const { engine, client } = opened
  await client
    .db('app')
    .collection<{ _id: string }>('ringfence')
    .insertOne({ _id: 'spoilt 2', token: 'many' } as never)
  const failure = engine.acquire(request(['spoilt 1', 'spoilt 2']))
  await expect(failure).rejects.toMatchObject({ code: 'ENGINE', transient: false })
  expect(await held(engine, 'spoilt 1')).toEqual([])
})

test('leases that are renewed by one request each get their own ttl', async () => {
  await using opened = open(server.url)
  const { engine } = opened
  const ttls = [5000, 60_000, 5000, 600_000]
  const leases = await Promise.all(ttls.map((_, index) => granted(engine, request([`ttl ${index}`], { ttlMs: 2000 }))))
  await engine.extend(leases.map((lease, index) => ({ ...lease, ttlMs: ttls[index]! })))
  for (const [index, ttlMs] of ttls.entries()) {
    const [{ remainingMs } = {}] = await held(engine, `ttl ${index}`)
    expect(remainingMs).toBeGreaterThan(ttlMs * 0.5)
    expect(remainingMs).toBeLessThanOrEqual(ttlMs)
  }
})

test('more leases than fit into one request are renewed by several', async () => {
  await using opened = open(server.url)
  const { engine } = opened
  const long = 'x'.repeat(990)
  const names = Array.from({ length: 1200 }, (_, index) => `${long} ${index}`)
  const leases = await Promise.all([0, 400, 800].map((from) => granted(engine, request(names.slice(from, from + 400)))))
  await engine.release(leases[1]!)
  expect(await engine.extend(leases)).toEqual([{ kind: 'held' }, { kind: 'lost' }, { kind: 'held' }])
})

test('a lease on several resources that lost one of them is lost, and lets go of the rest', async () => {
  await using opened = open(server.url)
  const { engine, client } = opened
  const lease = await granted(engine, request(['torn 1', 'torn 2']))
  const other = await granted(engine, request(['torn 3']))
  await client
    .db('app')
    .collection<LeaseDocument>('ringfence')
    .updateOne({ _id: 'torn 2' }, { $set: { owner: null } })
  expect(await engine.extend([other, lease])).toEqual([{ kind: 'held' }, { kind: 'lost' }])
  expect(await held(engine, 'torn 1')).toEqual([])
  expect(await held(engine, 'torn 3')).toHaveLength(1)
})

test('a hand-over of several resources passes them all on with one greater token, or lets go of what is left', async () => {
  await using opened = open(server.url)
  const { engine } = opened
  await engine.release(await granted(engine, request(['pair 2'])))
  const lease = await granted(engine, request(['pair 1', 'pair 2']))
  const next = request(lease.resources)
  expect(await engine.handOver!(lease, next)).toEqual({ kind: 'granted', token: lease.token + 1n })
  expect(await engine.extend([lease, { ...next, token: lease.token + 1n }])).toEqual([
    { kind: 'lost' },
    { kind: 'held' },
  ])
  await engine.release({ ...next, resources: ['pair 2'], token: 0n })
  const late = request(lease.resources)
  expect(await engine.handOver!({ ...next, token: 0n }, late)).toMatchObject({ kind: 'refused' })
  for (const resource of lease.resources) expect(await held(engine, resource)).toEqual([])
})

/** A small generator with a seed (mulberry32), so that a failure can be run again. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

interface Tenure {
  readonly resources: readonly string[]
  readonly token: bigint
  /** When it was asked for, granted and given up, as counts of all that happened here. */
  readonly asked: number
  readonly granted: number
  /** Undefined for one that runs out, at a time that nobody here knows. */
  readonly over: number | undefined
}

test('of many who want several resources at random, no two hold one at once, and every token is above those before', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31)
  console.log(`seed ${seed}`)
  const chance = seeded(seed)
  // The leases that run out are so short that a busy machine would not answer in the time that follows from them.
  const opened = Array.from({ length: 3 }, () => open(server.url, { requestTimeout: '10s' }))
  const names = ['r1', 'r2', 'r3', 'r4', 'r5']
  const tenures: Tenure[] = []
  const releases: boolean[] = []
  let time = 0
  const client = async (engine: Engine): Promise<void> => {
    for (let left = 12; left > 0;) {
      const resources = names.filter(() => chance() < 0.45)
      if (resources.length === 0) resources.push(names[0]!)
      // Some die in the middle of their lease, which then runs out.
      const dies = chance() < 0.15
      let asked = ++time
      let ask = request(resources, { ttlMs: dies ? 60 : 30_000 })
      let outcome = await engine.acquire(ask)
      while (outcome.kind === 'granted') {
        const { token } = outcome
        const granted = ++time
        await pause(chance() * 4)
        left--
        tenures.push({ resources, token, asked, granted, over: dies ? undefined : ++time })
        if (dies) break
        const next = request(resources)
        if (chance() < 0.7) {
          releases.push((await engine.release({ ...ask, token })).ours)
          break
        }
        asked = ++time
        outcome = await engine.handOver!({ ...ask, token }, next)
        ask = next
      }
      await pause(chance() * 8)
    }
  }
  try {
    await Promise.all([...opened, ...opened].map(({ engine }) => client(engine)))
  } finally {
    for (const one of opened) await one[Symbol.asyncDispose]()
  }
  expect(releases).not.toContain(false)
  // They did want several, and get them.
  expect(tenures.filter(({ resources }) => resources.length > 1).length).toBeGreaterThan(10)
  for (const name of names) {
    const own = tenures.filter(({ resources }) => resources.includes(name))
    expect(new Set(own.map(({ token }) => token)).size).toBe(own.length)
    expect(inverted(own), `${name}: a later one with a lower token`).toEqual([])
    expect(overlapping(own), `${name}: two at once`).toEqual([])
  }
})

/** Pairs of which the first was granted before the second was even asked for, and has the greater token. */
function inverted(tenures: readonly Tenure[]): Tenure[][] {
  return pairs(tenures).filter(([one, two]) => one.granted < two.asked && one.token > two.token)
}

/** Pairs of which the second was granted while the first was held. */
function overlapping(tenures: readonly Tenure[]): Tenure[][] {
  return pairs(tenures).filter(
    ([one, two]) => one.over !== undefined && one.granted < two.granted && two.granted < one.over,
  )
}

function pairs(tenures: readonly Tenure[]): [Tenure, Tenure][] {
  return tenures
    .flatMap((one) => tenures.map((two): [Tenure, Tenure] => [one, two]))
    .filter(([one, two]) => one !== two)
}

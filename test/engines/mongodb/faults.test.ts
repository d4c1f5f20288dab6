import { afterAll, beforeAll, expect, test } from 'vitest'
import { EngineError } from '../../../src/errors.ts'
import { isAvailable } from '../../../harness/binaries.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startMongodb, type MongodbServer } from '../../../harness/servers/mongodb.ts'
import { until } from '../../../harness/until.ts'
import { staysWithItsHolder } from '../lost-adoptions.ts'
import { granted, held, open, request } from './clients.ts'

const noClock = !isAvailable('clock-shift')
let alone: MongodbServer
let replicaSet: MongodbServer

beforeAll(async () => {
  ;[alone, replicaSet] = await Promise.all([startMongodb({ clockShift: !noClock }), startMongodb({ replicaSet: true })])
})

afterAll(() => Promise.all([alone.stop(), replicaSet.stop()]))

test('an attempt that a frozen server carries out late is undone', async () => {
  await using opened = open(alone.url, { requestTimeout: '1s' })
  const { engine } = opened
  const lease = await granted(engine, request(['warm']))
  const leases = opened.client.db('app').collection<{ _id: string; token: number; owner: string | null }>('ringfence')
  // The server may notice first that nobody waits for the answer any more, and carry out nothing: then once more.
  let late = 'late'
  let isCarriedOut = false
  for (let round = 1; round <= 5 && !isCarriedOut; round++) {
    late = `late ${round}`
    // So that the engine knows what the server is: the attempt must not end with that question.
    await granted(engine, request([`before ${late}`]))
    await alone.freeze()
    const began = performance.now()
    const failure = await engine.acquire(request([late])).catch((error: unknown) => error)
    // Not the 30 s that the driver would take.
    expect(performance.now() - began).toBeLessThan(15_000)
    expect(failure).toMatchObject({ code: 'ENGINE', transient: true, resources: [late] })
    await alone.thaw()
    const found = until(() => leases.findOne({ _id: late, token: 1 }), { what: 'the attempt', withinMs: 5000 })
    isCarriedOut = await found.then(
      () => true,
      () => false,
    )
  }
  // It was carried out: the counter says so. And it was undone, long before its ttl of 30 s.
  expect(isCarriedOut).toBe(true)
  await until(() => leases.findOne({ _id: late, token: 1, owner: null }), { what: 'the attempt is undone' })
  expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
})

test('a grant whose answer is lost is undone where the driver does not repeat it', async () => {
  await using proxy = await startProxy(alone.port)
  await using opened = open(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`)
  const { engine } = opened
  await granted(engine, request(['before']))
  proxy.cutOnNextReply('findAndModify')
  await expect(engine.acquire(request(['lost']))).rejects.toBeInstanceOf(EngineError)
  expect(proxy.lostReplies).toBe(1)
  expect(await held(engine, 'lost')).toEqual([])
  expect((await granted(engine, request(['lost']))).token).toBe(2n)
})

function commandOf(resources: number): string {
  return resources === 1 ? 'findAndModify' : 'update'
}

test('an adoption whose answer, or whose request, is lost leaves the lease to its holder', async () => {
  await using proxy = await startProxy(alone.port)
  await using holding = open(alone.url)
  await using adopting = open(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`, { requestTimeout: '1s' })
  const [{ engine: holder }, { engine: adopter }] = [holding, adopting]
  const heal = (): void => proxy.dropRequests(false)
  for (const lose of [
    (resources: number): void => proxy.cutOnNextReply(commandOf(resources)),
    (resources: number): void => proxy.dropRequests(commandOf(resources)),
  ])
    await staysWithItsHolder({ holder, adopter, lose, heal })
})

test('a grant, an extension and a release whose answers are lost are repeated by the driver, and done once', async () => {
  await using proxy = await startProxy(replicaSet.port)
  await using opened = open(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`)
  const { engine } = opened
  await granted(engine, request(['before']))
  proxy.cutOnNextReply('findAndModify')
  const lease = await granted(engine, request(['lost']))
  expect(lease.token).toBe(1n)
  proxy.cutOnNextReply('update')
  expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
  proxy.cutOnNextReply('update')
  expect(await engine.release(lease)).toEqual({ ours: true, awaited: 0 })
  expect(proxy.lostReplies).toBe(3)
})

test('a release that gets no answer rejects, and is made up for when the server is back', async () => {
  await using opened = open(alone.url, { requestTimeout: '1s' })
  const { engine } = opened
  const lease = await granted(engine, request(['kept']))
  await alone.kill()
  await expect(engine.release(lease)).rejects.toMatchObject({ code: 'ENGINE', transient: true })
  expect(await engine.extend([lease])).toMatchObject([{ kind: 'unknown' }])
  await alone.restart()
  await until(async () => (await held(engine, 'kept')).length === 0, { what: 'the lease is gone' })
})

test('a client that was closed is no reason to try again, and leaves nothing that tries', async () => {
  const opened = open(alone.url)
  await granted(opened.engine, request(['closing']))
  await opened.client.close()
  await expect(opened.engine.acquire(request(['closed']))).rejects.toMatchObject({ code: 'ENGINE', transient: false })
  await opened.engine.close()
})

test('a client without a login is told so at once', async () => {
  await using guarded = await startMongodb({ auth: true })
  await using opened = open(guarded.url)
  const failure = await opened.engine.acquire(request(['secret'])).catch((error: unknown) => error)
  expect(failure).toMatchObject({ code: 'ENGINE', transient: false })
  expect(String(failure)).toContain('requires authentication')
  await expect(held(opened.engine, 'secret')).rejects.toMatchObject({ code: 'ENGINE', transient: false })
})

test('a clock that jumps ahead ends leases early, and the token of the next holder is greater', async ({ skip }) => {
  skip(noClock, 'no C compiler, so no library that shifts clocks')
  await using opened = open(alone.url)
  const { engine } = opened
  const lease = await granted(engine, request(['jump']))
  alone.shiftClock(40_000)
  try {
    // A server that finds itself 40 s later gives up what it is doing at first.
    const isLost = async (): Promise<boolean> => (await engine.extend([lease]))[0]!.kind === 'lost'
    await until(isLost, { what: 'the lease is lost' })
    const next = await granted(engine, request(['jump']))
    expect(next.token).toBe(lease.token + 1n)
    // Set back, it only makes the lease last longer: what is free stays free.
    const free = await granted(engine, request(['set back']))
    await engine.release(free)
    alone.shiftClock(0)
    expect(await engine.acquire(request(['jump']))).toMatchObject({ kind: 'refused', holder: next.owner })
    await granted(engine, request(['set back']))
  } finally {
    alone.shiftClock(0)
  }
})

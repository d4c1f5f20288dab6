import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { mongodb } from '../../../src/engines/mongodb/index.ts'
import type { Engine, Watch } from '../../../src/engine.ts'
import type { LockEvent } from '../../../src/events.ts'
import { createLocks } from '../../../src/locks.ts'
import { startMongodb, type MongodbServer } from '../../../harness/servers/mongodb.ts'
import { until } from '../../../harness/until.ts'
import { granted, open, request } from './clients.ts'

let alone: MongodbServer
let replicaSet: MongodbServer

beforeAll(async () => {
  ;[alone, replicaSet] = await Promise.all([startMongodb(), startMongodb({ replicaSet: true })])
})

afterAll(() => Promise.all([alone.stop(), replicaSet.stop()]))

interface Counted extends Watch {
  readonly calls: () => number
}

function watch(engine: Engine, resources: readonly string[]): Counted {
  let calls = 0
  const watch = engine.watch!(resources, () => calls++)
  return { armed: watch.armed, close: () => watch.close(), calls: () => calls }
}

/** Waits until someone is called once more than now, after something was done. */
async function calledAfter(watch: Counted, action: () => Promise<unknown>): Promise<void> {
  const before = watch.calls()
  await action()
  await until(() => watch.calls() > before, { what: 'a wake-up' })
}

async function openCursors(server: MongodbServer): Promise<bigint> {
  const { metrics } = await server.command({ serverStatus: 1 })
  return (metrics as unknown as { cursor: { open: { total: bigint } } }).cursor.open.total
}

/** Also those of the tests before are gone then. */
function untilNoCursor(server: MongodbServer): Promise<boolean> {
  return until(async () => (await openCursors(server)) === 0n, { what: 'no stream is open' })
}

async function aggregates(server: MongodbServer): Promise<bigint> {
  const { metrics } = await server.command({ serverStatus: 1 })
  return (metrics as unknown as { commands: { aggregate: { total: bigint } } }).commands.aggregate.total
}

test('a watcher is called for its own resources alone, by a release, and not by a grant or a renewal', async () => {
  await using one = open(replicaSet.url)
  await using two = open(replicaSet.url)
  const [mine, others] = [watch(two.engine, ['mine', 'also mine']), watch(two.engine, ['others'])]
  expect(await Promise.all([mine.armed, others.armed])).toEqual([true, true])
  const lease = await granted(one.engine, request(['mine']))
  await one.engine.extend([lease])
  const next = request(['mine'])
  await one.engine.handOver!(lease, next)
  await calledAfter(mine, () => one.engine.release({ ...next, token: 0n }))
  expect(mine.calls()).toBe(1)
  const second = await granted(one.engine, request(['also mine']))
  await calledAfter(mine, () => one.engine.release(second))
  expect(mine.calls()).toBe(2)
  expect(others.calls()).toBe(0)
})

test('all who wait in a process share one change stream, which ends with the engine', async () => {
  await untilNoCursor(replicaSet)
  const opened = open(replicaSet.url)
  const watches = Array.from({ length: 20 }, (_, index) => watch(opened.engine, [`shared ${index}`]))
  expect(await Promise.all(watches.map(({ armed }) => armed))).toEqual(watches.map(() => true))
  expect(await openCursors(replicaSet)).toBe(1n)
  await opened.engine.close()
  await untilNoCursor(replicaSet)
  await opened.client.close()
})

test('the stream ends a while after the last watcher has left, and a new watcher opens another', async () => {
  await untilNoCursor(replicaSet)
  await using opened = open(replicaSet.url)
  const first = watch(opened.engine, ['left'])
  expect(await first.armed).toBe(true)
  first.close()
  await untilNoCursor(replicaSet)
  const second = watch(opened.engine, ['left'])
  expect(await second.armed).toBe(true)
  const lease = await granted(opened.engine, request(['left']))
  await calledAfter(second, () => opened.engine.release(lease))
  expect(first.calls()).toBe(0)
})

test('whenever a stream is closed, its cursor is gone from the server', async () => {
  await untilNoCursor(replicaSet)
  await using opened = open(replicaSet.url)
  const closed = Array.from({ length: 40 }, async (_, index) => {
    const engine = mongodb(opened.client.db('app'))
    const { armed } = watch(engine, ['any'])
    const isArmed = await armed
    // About when the server answers that there is no news, too.
    await pause(490 + index)
    await engine.close()
    return isArmed
  })
  expect(await Promise.all(closed)).toContain(true)
  await untilNoCursor(replicaSet)
})

test('a stream that breaks calls its watchers, and hears of later releases again', async () => {
  await using opened = open(replicaSet.url, { collection: 'dropped' })
  const { engine, client } = opened
  await granted(engine, request(['other']))
  const watching = watch(engine, ['broken', 'meanwhile'])
  expect(await watching.armed).toBe(true)
  // The server ends streams of a collection that is dropped.
  await calledAfter(watching, () => client.db('app').dropCollection('dropped'))
  const meanwhile = await granted(engine, request(['meanwhile']))
  const lease = await granted(engine, request(['broken']))
  const isArmed = (): Promise<boolean> => {
    const probe = watch(engine, ['broken'])
    return probe.armed.finally(() => probe.close())
  }
  await until(async () => !(await isArmed()), { what: 'the end of the stream' })
  // No stream can tell of this one.
  await calledAfter(watching, () => engine.release(meanwhile))
  await until(isArmed, { what: 'a new stream' })
  await calledAfter(watching, () => engine.release(lease))
})

test('a watcher hears of a release after the server was killed and came back', async () => {
  await using opened = open(replicaSet.url)
  const { engine } = opened
  const lease = await granted(engine, request(['restart']))
  const watching = watch(engine, ['restart'])
  expect(await watching.armed).toBe(true)
  await replicaSet.kill()
  await replicaSet.restart()
  await until(async () => (await engine.extend([lease]))[0]!.kind === 'held', { what: 'the lease', withinMs: 30_000 })
  await calledAfter(watching, () => engine.release(lease))
})

test('a waiter gets a lease that is released elsewhere long before it would poll or the lease would end', async () => {
  await using one = open(replicaSet.url)
  await using two = open(replicaSet.url)
  // Held by locks of ours: where other software holds it, a waiter polls.
  const lease = await createLocks(one.engine).acquire('prompt')
  const events: LockEvent[] = []
  const locks = createLocks(two.engine, { observe: (event) => events.push(event) })
  const wanted = locks.acquire('prompt', { wait: '20s' })
  // Two refusals: the second one was asked for when the stream was open.
  await until(() => events.filter(({ type }) => type === 'refused').length >= 2, { what: 'two refusals' })
  const asleepMs = (): number => {
    const last = events.at(-1)
    return last?.type === 'waiting' && last.atMostMs > 1000 ? last.atMostMs : 0
  }
  const atMostMs = await until(asleepMs, { what: 'a waiter that sleeps' })
  const began = performance.now()
  await lease.release()
  await (await wanted).release()
  const tookMs = performance.now() - began
  console.log(`release, wake-up and acquire took ${Math.round(tookMs)} ms`)
  expect(tookMs).toBeLessThan(atMostMs)
  await locks.close()
})

test('without a replica set a watch is not armed, and the server is not asked for a stream again and again', async () => {
  await using opened = open(alone.url)
  expect(await watch(opened.engine, ['polled']).armed).toBe(false)
  const before = await aggregates(alone)
  for (let i = 0; i < 5; i++) expect(await watch(opened.engine, ['polled']).armed).toBe(false)
  expect(await aggregates(alone)).toBe(before)
  expect(await openCursors(alone)).toBe(0n)
})

test('a client with a single connection keeps it for its leases: the watch is not armed', async () => {
  await using opened = open(replicaSet.url, {}, { maxPoolSize: 1 })
  await untilNoCursor(replicaSet)
  expect(await watch(opened.engine, ['single']).armed).toBe(false)
  expect(await openCursors(replicaSet)).toBe(0n)
})

test('a frozen server arms nothing, and a watch on it is closed in time', async () => {
  const opened = open(replicaSet.url)
  await granted(opened.engine, request(['frozen']))
  await replicaSet.freeze()
  const began = performance.now()
  expect(await watch(opened.engine, ['frozen']).armed).toBe(false)
  await opened.engine.close()
  expect(performance.now() - began).toBeLessThan(10_000)
  await replicaSet.thaw()
  await opened.client.close()
})

import * as driver from 'node-zookeeper-client'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { zookeeper } from '../../../src/engines/zookeeper/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startZookeeper, type ZookeeperServer } from '../../../harness/servers/zookeeper.ts'
import { until } from '../../../harness/until.ts'
import { dropsItsPlace, givesUpItsPlace, keepsItsPlace } from '../given-up.ts'
import { groupsOf, lineUp, queueLength, race, reader } from '../readers-and-writers.ts'
import { granted, requestFor } from '../requests.ts'
import { endSession, rawClient, spyingDriver } from './raw-client.ts'

let server: ZookeeperServer
let count = 0

beforeAll(async () => {
  server = await startZookeeper()
})

afterAll(() => server.stop())

/** A path that no other test uses. */
function newPath(): string {
  return `/shared${count++}`
}

function address(): string {
  return `127.0.0.1:${server.port}`
}

function newEngine(path: string, servers = address()): Engine {
  const engine = zookeeper(driver, servers, { path })
  onTestFinished(() => engine.close())
  return engine
}

function newLocks(path: string, clients: driver.Client[] = []): Locks {
  const locks = createLocks(zookeeper(spyingDriver(clients), address(), { path }), { ttl: '10s' })
  onTestFinished(() => locks.close())
  return locks
}

/** The znodes that are watched: `c` or `s`, and the owner's id. */
async function watched(): Promise<string[]> {
  const text = await server.command('wchp')
  return [...text.matchAll(/_([cs])_(\w+)@test-lock-/g)].map(([, kind, id]) => `${kind} ${id}`)
}

const never = new AbortController().signal

test('a mixed queue over two clients is served in its order, readers side by side', async () => {
  const path = newPath()
  const engines = [newEngine(path), newEngine(path)]
  const blocker = await granted(engines[0]!, requestFor('x'))
  const queue = await lineUp(engines, 'x', 'wrrwr')
  await engines[0]!.release(blocker)
  await queue.over
  expect(groupsOf(queue.events)).toEqual(['w0', 'r1 r2', 'w3', 'r4'])
  expect(queue.tokens).toEqual([...queue.tokens].sort((a, b) => (a < b ? -1 : 1)))
  expect(await (await rawClient(address())).children(path)).toEqual([])
})

test('readers and writers of three clients race for resources that cross each other: no writer is beside anyone', async () => {
  const path = newPath()
  await race([newLocks(path), newLocks(path), newLocks(path)], [['x', 'y'], ['y', 'z'], ['x'], ['x', 'y', 'z']])
  expect(await (await rawClient(address())).children(path)).toEqual([])
})

test('a reader watches the last writer before it, and a writer the last znode before it', async () => {
  const path = newPath()
  const holder = newEngine(path)
  const leases = [await reader(holder, 'x'), await reader(holder, 'x')]
  const requests = [false, true, true, false].map((shared) => ({ ...requestFor('x'), shared }))
  const places = newEngine(path)
  const turns = []
  for (const [index, request] of requests.entries()) {
    turns.push(places.enqueue!(request, never))
    await until(async () => (await queueLength(holder, 'x')) === index + 3, { what: `place ${index}` })
  }
  const [second, writer, fourth] = [leases[1]!, requests[0]!, requests[2]!].map(({ owner }) => owner.split('@')[0]!)
  const expected = [`s ${second}`, `c ${writer}`, `s ${fourth}`].sort()
  await until(async () => (await watched()).length === expected.length, { what: 'their watches' })
  expect((await watched()).sort()).toEqual(expected)
  for (const lease of leases) await holder.release(lease)
  for (const [index, request] of requests.entries())
    await places.release({ ...request, token: (await turns[index]!).token })
})

test('a reader is told who holds it and not who waits, and the refusal leaves nothing', async () => {
  const path = newPath()
  const [one, two] = [newEngine(path), newEngine(path)]
  const lease = await reader(one, ['a', 'b'])
  const stop = new AbortController()
  const waiting = two.enqueue!(requestFor('b'), stop.signal).catch((reason: unknown) => reason)
  await until(async () => (await queueLength(one, 'b')) === 2, { what: 'a writer that waits' })
  const raw = await rawClient(address())
  const before = await raw.tree(path)
  const outcome = await two.acquire({ ...requestFor(['b', 'c']), shared: true })
  expect(outcome).toMatchObject({ kind: 'refused', reason: 'held', holder: lease.owner })
  expect(await raw.tree(path)).toEqual(before)
  // Where no writer waits, there is room.
  await two.release(await reader(two, ['a', 'c']))
  stop.abort(new Error('enough'))
  expect(await waiting).toMatchObject({ message: 'enough' })
  expect(await two.release(lease)).toMatchObject({ ours: true })
  expect(await raw.children(path)).toEqual([])
})

test('when a writer that waits gives up, the readers behind it join those before it', async () => {
  const path = newPath()
  const [one, two] = [newEngine(path), newEngine(path)]
  const lease = await reader(one, 'x')
  const stop = new AbortController()
  const waiting = two.enqueue!(requestFor('x'), stop.signal).catch((reason: unknown) => reason)
  await until(async () => (await queueLength(one, 'x')) === 2, { what: 'a writer that waits' })
  const request = { ...requestFor('x'), shared: true }
  const behind = two.enqueue!(request, never)
  await until(async () => (await queueLength(one, 'x')) === 3, { what: 'a reader behind it' })
  stop.abort(new Error('enough'))
  await waiting
  const { token } = await behind
  expect(await one.extend([lease])).toEqual([{ kind: 'held' }])
  expect(await two.extend([{ ...request, token }])).toEqual([{ kind: 'held' }])
})

test('a reader whose wait is aborted leaves nothing, and nobody else notices', async () => {
  const path = newPath()
  const [one, two] = [newEngine(path), newEngine(path)]
  const lease = await granted(one, requestFor('x'))
  const stop = new AbortController()
  const waiting = two.enqueue!({ ...requestFor('x'), shared: true }, stop.signal)
  await until(async () => (await queueLength(one, 'x')) === 2, { what: 'a reader that waits' })
  const reason = new Error('changed my mind')
  stop.abort(reason)
  await expect(waiting).rejects.toBe(reason)
  expect(await one.extend([lease])).toEqual([{ kind: 'held' }])
  await one.release(lease)
  expect(await (await rawClient(address())).children(path)).toEqual([])
})

test('a session that ends takes its readers with it, and those of others stay', async () => {
  const path = newPath()
  const clients: driver.Client[] = []
  const gone = newLocks(path, clients)
  const [lost, other] = [gone, newLocks(path)].map((locks) => locks.acquire('x', { shared: true }))
  const leases = [await lost!, await other!]
  const waiting = newLocks(path).acquire('x', { wait: '20s' })
  const engine = newEngine(path)
  await until(async () => (await queueLength(engine, 'x')) === 3, { what: 'a writer that waits' })
  await endSession(clients[0]!, address())
  await until(() => leases[0]!.signal.aborted, { what: 'the signal' })
  await until(async () => (await queueLength(engine, 'x')) === 2, { what: 'one reader and the writer' })
  expect(leases[1]!.held).toBe(true)
  expect(await leases[1]!.release()).toBe(true)
  const writer = await waiting
  for (const { token } of leases) expect(writer.token).toBeGreaterThan(token)
})

test('a place of a reader whose creation was never confirmed is found again, not taken twice', async () => {
  const path = newPath()
  await using proxy = await startProxy(server.port)
  const engine = newEngine(path)
  const lease = await granted(engine, requestFor('x'))
  const cutOff = newEngine(path, `127.0.0.1:${proxy.port}`)
  await cutOff.init?.()
  const request = { ...requestFor('x'), owner: 'waiter', shared: true }
  proxy.cutOnNextReply('_s_waiter-lock-')
  const queued = cutOff.enqueue!(request, never)
  await until(() => proxy.lostReplies === 1, { what: 'a lost answer' })
  await until(async () => (await queueLength(engine, 'x')) === 2, { what: 'a reader that waits' })
  await engine.release(lease)
  expect((await queued).token).toBeGreaterThan(lease.token)
  const raw = await rawClient(address())
  expect(await raw.children(`${path}/x`)).toEqual([expect.stringMatching(/^_s_waiter-lock-\d{10}$/)])
})

test('a reader whose grant was never confirmed is undone, and the others stay', async () => {
  const path = newPath()
  await using proxy = await startProxy(server.port)
  const engine = newEngine(path)
  const cutOff = newEngine(path, `127.0.0.1:${proxy.port}`)
  await cutOff.init?.()
  const lease = await reader(engine, 'x')
  proxy.cutOnNextReply('_s_me-lock-')
  const request = { ...requestFor('x'), owner: 'me', shared: true }
  await expect(cutOff.acquire(request)).rejects.toMatchObject({ code: 'ENGINE', transient: true })
  expect(proxy.lostReplies).toBe(1)
  await until(async () => (await queueLength(engine, 'x')) === 1, { what: 'the undoing' })
  expect(await engine.extend([lease])).toEqual([{ kind: 'held' }])
})

test('a hundred resources are shared at once, at once and from the queue', async () => {
  const path = newPath()
  const names = Array.from({ length: 100 }, (_, index) => `hundred-${index}`)
  const [one, two] = [newEngine(path), newEngine(path)]
  const [lease, again] = [await reader(one, names), await reader(two, names)]
  const request = { ...requestFor(names), shared: true }
  const { token } = await two.enqueue!(request, never)
  expect(await one.acquire(requestFor(names.at(-1)!))).toMatchObject({ kind: 'refused', holder: lease.owner })
  expect(await two.extend([again, { ...request, token }])).toEqual([{ kind: 'held' }, { kind: 'held' }])
  for (const each of [lease, again, { ...request, token }])
    expect(await two.release(each)).toMatchObject({ ours: true })
  expect(await (await rawClient(address())).children(path)).toEqual([])
})

test('the znode of a mutex of other software is waited for, and comes behind readers by its number', async () => {
  const path = newPath()
  const raw = await rawClient(address())
  const engine = newEngine(path)
  const lease = await reader(engine, 'x')
  const foreign = await raw.create(`${path}/x/_c_6f0c-lock-`, driver.CreateMode.EPHEMERAL_SEQUENTIAL)
  expect(await engine.acquire({ ...requestFor('x'), shared: true })).toMatchObject({ kind: 'refused' })
  // Such software sorts by what comes after `lock-`, whatever comes before.
  const numbers = (await raw.children(`${path}/x`)).map((name) => name.slice(name.lastIndexOf('lock-'))).sort()
  expect(foreign.endsWith(numbers[1]!)).toBe(true)
  expect(numbers).toHaveLength(2)
  const request = { ...requestFor('x'), shared: true }
  const waiting = engine.enqueue!(request, never)
  await until(async () => (await queueLength(engine, 'x')) === 3, { what: 'a reader behind it' })
  await raw.remove(foreign)
  expect((await waiting).token).toBeGreaterThan(lease.token)
})

test('a lease that was left to run out keeps readers out, too', async () => {
  const path = newPath()
  const first = newLocks(path)
  await first.once('job', { atLeast: '3s' }, () => undefined)
  await first.close()
  const second = newLocks(path)
  expect(await second.tryAcquire('job', { shared: true })).toBeNull()
  expect((await second.acquire('job', { shared: true, wait: '20s' })).held).toBe(true)
})

test('when callers of a process give up, the next one keeps their place', async () => {
  const path = newPath()
  await keepsItsPlace(() => zookeeper(driver, address(), { path }), 'x')
})

test('a place is given up when the next caller of the process wants something else', async () => {
  const path = newPath()
  await givesUpItsPlace(() => zookeeper(driver, address(), { path }), 'x')
})

test('a place that was kept for someone who does not come is dropped', async () => {
  const path = newPath()
  await dropsItsPlace(() => zookeeper(driver, address(), { path }), 'x')
  expect(await (await rawClient(address())).children(path)).toEqual([])
})

test('a server restarts while readers hold and others wait: nobody loses a lease or a place', async () => {
  const path = newPath()
  const [one, two] = [newEngine(path), newEngine(path)]
  const leases = [await reader(one, 'x'), await reader(one, 'x')]
  const queue = await lineUp([one, two], 'x', 'wrr')
  await server.kill()
  await server.restart()
  for (const lease of leases) {
    const isHeld = async (): Promise<boolean> => (await one.extend([lease]))[0]!.kind === 'held'
    await until(isHeld, { what: 'a renewal' })
    expect(await one.release(lease)).toMatchObject({ ours: true })
  }
  await queue.over
  expect(groupsOf(queue.events)).toEqual(['w0', 'r1 r2'])
})

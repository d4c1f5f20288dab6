import { createServer, type AddressInfo, type Socket } from 'node:net'
import { inspect } from 'node:util'
import * as driver from 'node-zookeeper-client'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Engine, LeaseInfo, LeaseRequest } from '../../../src/engine.ts'
import { zookeeper, type ZookeeperOptions } from '../../../src/engines/zookeeper/index.ts'
import { createLocks, type Locks, type LocksOptions } from '../../../src/index.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startZookeeper, type ZookeeperServer } from '../../../harness/servers/zookeeper.ts'
import { until } from '../../../harness/until.ts'
import { exercised, pageLines } from '../../operating/least-rights.ts'
import { endSession, rawClient, spyingDriver } from './raw-client.ts'

let server: ZookeeperServer
let count = 0

beforeAll(async () => {
  server = await startZookeeper({ maxSessionMs: 10_000 })
})

afterAll(() => server.stop())

/** A path that no other test uses. */
function newPath(): string {
  return `/test${count++}`
}

function address(chroot = ''): string {
  return `127.0.0.1:${server.port}${chroot}`
}

function newEngine(options: ZookeeperOptions, servers = address()): Engine {
  const engine = zookeeper(driver, servers, { maxTtl: '5s', ...options })
  onTestFinished(() => engine.close())
  return engine
}

function newLocks(options: ZookeeperOptions, settings: LocksOptions = {}, servers = address()): Locks {
  const locks = createLocks(zookeeper(driver, servers, { maxTtl: '5s', ...options }), settings)
  onTestFinished(() => locks.close())
  return locks
}

function request(owner: string, ...resources: string[]): LeaseRequest {
  return { resources, owner, ttlMs: 5000 }
}

async function shown(engine: Engine, resource: string): Promise<LeaseInfo | undefined> {
  for await (const info of engine.inspect(resource)) return info
  return undefined
}

describe('the znodes', () => {
  test('a lease is an ephemeral sequential znode whose czxid is the token; its folder goes with it', async () => {
    const path = newPath()
    const raw = await rawClient(address())
    const engine = newEngine({ path })
    const outcome = await engine.acquire(request('me@here', 'a/b', 'c'))
    expect(await raw.tree(path)).toEqual([
      `${path}/a%2Fb`,
      `${path}/a%2Fb/_c_me@here-lock-0000000000`,
      `${path}/c`,
      `${path}/c/_c_me@here-lock-0000000000`,
    ])
    for (const folder of ['a%2Fb', 'c']) {
      const stat = await raw.stat(`${path}/${folder}/_c_me@here-lock-0000000000`)
      expect(outcome).toEqual({ kind: 'granted', token: stat?.czxid.readBigInt64BE() })
      expect(stat?.ephemeralOwner.readBigInt64BE()).not.toBe(0n)
    }
    await engine.release({ ...request('me@here', 'a/b', 'c'), token: 0n })
    expect(await raw.tree(path)).toEqual([])
  })

  test('the path is made below the chroot', async () => {
    const chroot = newPath()
    const raw = await rawClient(address())
    await raw.create(chroot)
    const engine = newEngine({ path: '/locks/mine' }, address(chroot))
    await engine.acquire(request('me', 'x'))
    expect(await raw.children(`${chroot}/locks/mine/x`)).toEqual(['_c_me-lock-0000000000'])
    expect(engine.identity).toBe(`zookeeper:${chroot}/locks/mine`)
  })

  test('a chroot that does not exist is said to be missing, and trying again does not help', async () => {
    const engine = newEngine({}, address('/nowhere'))
    await expect(engine.acquire(request('me', 'x'))).rejects.toMatchObject({
      code: 'ENGINE',
      transient: false,
      message: expect.stringContaining('the chroot of the connection string does not exist'),
    })
  })

  test('a path that was removed by others is made again', async () => {
    const path = newPath()
    const raw = await rawClient(address())
    const engine = newEngine({ path })
    await engine.init?.()
    await raw.remove(path)
    expect(await engine.acquire(request('me', 'x'))).toMatchObject({ kind: 'granted' })
  })

  test('the znode of other software in the queue is waited for, and shown', async () => {
    const path = newPath()
    const raw = await rawClient(address())
    const locks = newLocks({ path })
    await locks.check()
    await raw.create(`${path}/x`)
    const foreign = await raw.create(`${path}/x/_c_6f0c-lock-`, driver.CreateMode.EPHEMERAL_SEQUENTIAL)
    expect(await locks.tryAcquire('x')).toBeNull()
    const waiting = locks.acquire('x', { wait: '10s' })
    await until(async () => (await raw.children(`${path}/x`)).length === 2, { what: 'a place in the queue' })
    expect(await shown(newEngine({ path }), 'x')).toMatchObject({ owner: '6f0c', remainingMs: undefined, waiters: 1 })
    await raw.remove(foreign)
    expect((await waiting).held).toBe(true)
  })

  test('init makes the path and removes the folders of those who died', async () => {
    const path = newPath()
    const raw = await rawClient(address())
    expect(await newEngine({ path }).init?.()).toEqual([`made ${path}`])
    await raw.create(`${path}/dead`)
    const engine = newEngine({ path })
    await engine.acquire(request('me', 'alive'))
    expect(await engine.init?.()).toEqual([`removed ${path}/dead, which a process that died had left empty`])
    expect(await raw.children(path)).toEqual(['alive'])
  })

  test('an empty folder that someone left behind is no hindrance, and goes with the next lease', async () => {
    const path = newPath()
    const raw = await rawClient(address())
    const engine = newEngine({ path })
    await engine.init?.()
    await raw.create(`${path}/x`)
    const outcome = await engine.acquire(request('me', 'x', 'y'))
    expect(outcome.kind).toBe('granted')
    expect(await engine.acquire(request('you', 'x'))).toMatchObject({ kind: 'refused', holder: 'me' })
    expect(await shown(engine, 'x')).toMatchObject({ owner: 'me', waiters: 0 })
    await engine.release({ ...request('me', 'x', 'y'), token: 0n })
    expect(await raw.children(path)).toEqual([])
  })
})

describe('sizes', () => {
  test('a lease on a hundred resources with the longest names is granted, renewed and released', async () => {
    const path = newPath()
    const locks = newLocks({ path, requestTimeout: '10s' }, { ttl: '5s' })
    // 1,022 bytes each, three times as many when they are encoded.
    const resources = Array.from({ length: 100 }, (_, index) => `${'語'.repeat(340)}${String(index).padStart(2, '0')}`)
    const lease = await locks.acquire(resources)
    await lease.extend('4s')
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
    expect(await (await rawClient(address())).children(path)).toEqual([])
  })

  test('more leases than one transaction carries are renewed at once, each with its own answer', async () => {
    const engine = newEngine({ path: newPath(), requestTimeout: '10s' })
    const leases = []
    for (let i = 0; i < 100; i++) {
      const wanted = request(`me${i}`, `${'語'.repeat(330)}${i}`)
      const outcome = await engine.acquire(wanted)
      leases.push({ ...wanted, token: outcome.kind === 'granted' ? outcome.token : 0n })
    }
    for (const index of [0, 50, 99]) await engine.release(leases[index]!)
    const lost = (await engine.extend(leases)).flatMap(({ kind }, index) => (kind === 'held' ? [] : [[index, kind]]))
    expect(lost).toEqual([0, 50, 99].map((index) => [index, 'lost']))
  })

  test('what others have removed is found among many', async () => {
    const path = newPath()
    const [engine, other] = [newEngine({ path, requestTimeout: '10s' }), newEngine({ path })]
    const leases = []
    for (let i = 0; i < 10; i++) {
      const outcome = await engine.acquire(request(`me${i}`, `x${i}`))
      leases.push({ ...request(`me${i}`, `x${i}`), token: outcome.kind === 'granted' ? outcome.token : 0n })
    }
    for (const index of [2, 7]) expect(await other.release(leases[index]!)).toMatchObject({ ours: true })
    const kinds = (await engine.extend(leases)).map(({ kind }) => kind)
    expect(kinds).toEqual(leases.map((_, index) => ([2, 7].includes(index) ? 'lost' : 'held')))
  })
})

describe('the queue', () => {
  test('processes get their turn in the order in which they came, and inspect counts those who wait', async () => {
    const path = newPath()
    const engine = newEngine({ path })
    const first = await newLocks({ path }).acquire('x')
    const order: number[] = []
    const sections: Promise<void>[] = []
    for (let i = 0; i < 4; i++) {
      const section = newLocks({ path }).using('x', { wait: '20s' }, () => void order.push(i))
      sections.push(section.then(() => undefined))
      await until(async () => (await shown(engine, 'x'))?.waiters === i + 1, { what: `waiter ${i} in line` })
    }
    const info = await shown(engine, 'x')
    expect(info).toMatchObject({ owner: first.owner, token: first.token })
    expect(info?.heldMs).toBeGreaterThan(0)
    // Whoever does not want to wait is not let in before those who do.
    await first.release()
    await Promise.all(sections)
    expect(order).toEqual([0, 1, 2, 3])
  })

  test('one who does not wait is refused while others wait', async () => {
    const path = newPath()
    const [engine, other] = [newEngine({ path }), newEngine({ path })]
    await engine.acquire(request('holder', 'x'))
    const controller = new AbortController()
    const queued = other.enqueue?.(request('waiter', 'x'), controller.signal)
    await until(async () => (await shown(engine, 'x'))?.waiters === 1, { what: 'a waiter' })
    await engine.release({ ...request('holder', 'x'), token: 0n })
    expect(await queued).toMatchObject({ kind: 'granted' })
    expect(await engine.acquire(request('late', 'x'))).toMatchObject({ kind: 'refused', holder: 'waiter' })
  })

  test('leases on several resources in any order never block each other for good', async () => {
    const path = newPath()
    const all = [newLocks({ path }), newLocks({ path }), newLocks({ path })]
    const wanted = [
      ['a', 'b'],
      ['b', 'c'],
      ['c', 'a'],
    ]
    const tokens: bigint[] = []
    await Promise.all(
      all.flatMap((locks, index) =>
        Array.from({ length: 8 }, () =>
          locks.using(wanted[index]!, { wait: '30s' }, ({ token }) => void tokens.push(token)),
        ),
      ),
    )
    expect(new Set(tokens).size).toBe(24)
    expect(await (await rawClient(address())).children(path)).toEqual([])
  })

  test('a waiter who gives up leaves the line, and those who give up leave no watches behind', async () => {
    const path = newPath()
    const warnings: string[] = []
    const warned = (warning: Error): void => void warnings.push(warning.message)
    process.on('warning', warned)
    onTestFinished(() => void process.off('warning', warned))
    const engine = newEngine({ path })
    await engine.acquire(request('holder', 'x'))
    const others = newEngine({ path })
    for (let i = 0; i < 15; i++) {
      const controller = new AbortController()
      const queued = others.enqueue?.(request(`waiter${i}`, 'x'), controller.signal)
      await until(async () => (await shown(engine, 'x'))?.waiters === 1, { what: 'a waiter' })
      controller.abort(new Error('enough'))
      await expect(queued).rejects.toThrow('enough')
      expect((await shown(engine, 'x'))?.waiters).toBe(0)
    }
    expect(Number(/zk_watch_count\t(\d+)/.exec(await server.command('mntr'))?.[1])).toBeLessThanOrEqual(1)
    expect(warnings).toEqual([])
  })

  test('a holder that renews is never taken for dead by those who wait', async () => {
    const path = newPath()
    const lease = await newLocks({ path }, { ttl: 2000 }).acquire('x')
    const waiting = newLocks({ path }, { ttl: 2000 }).acquire('x', { wait: 5000 })
    await expect(waiting).rejects.toMatchObject({ code: 'WAIT_TIMEOUT' })
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
  })
})

describe('the end of a lease', () => {
  test('a person releases a lease from another process, and its holder hears of it', async () => {
    const path = newPath()
    const lease = await newLocks({ path }, { ttl: '5s' }).acquire(['x', 'y'])
    const { resources, owner, token } = lease
    const other = newEngine({ path })
    expect(await other.release({ resources: ['x'], owner, token, ttlMs: 1000 })).toMatchObject({ ours: true })
    await until(() => lease.signal.aborted, { what: 'the signal' })
    expect(lease.signal.reason).toMatchObject({ reason: 'stolen' })
    // The other half of it is worth nothing, and goes too.
    const raw = await rawClient(address())
    await until(async () => (await raw.children(path)).length === 0, { what: 'nothing left' })
    expect(resources).toEqual(['x', 'y'])
  })

  test('a session that ends takes its leases with it; the next lease comes with a new session', async () => {
    const path = newPath()
    const clients: driver.Client[] = []
    const locks = createLocks(zookeeper(spyingDriver(clients), address(), { path, maxTtl: '5s' }), { ttl: '5s' })
    onTestFinished(() => locks.close())
    const lease = await locks.acquire('x')
    await endSession(clients[0]!, address())
    await until(() => lease.signal.aborted, { what: 'the signal' })
    expect(lease.signal.reason).toMatchObject({ reason: 'stolen' })
    const next = await locks.acquire('x', { wait: '10s' })
    expect(next.token).toBeGreaterThan(lease.token)
    expect(clients).toHaveLength(2)
  })

  test('a waiter whose session ends goes on waiting in a new one', async () => {
    const path = newPath()
    const clients: driver.Client[] = []
    const engine = newEngine({ path })
    await engine.acquire(request('holder', 'x'))
    const locks = createLocks(zookeeper(spyingDriver(clients), address(), { path, maxTtl: '5s' }), { ttl: '5s' })
    onTestFinished(() => locks.close())
    const waiting = locks.acquire('x', { wait: '20s' })
    await until(async () => (await shown(engine, 'x'))?.waiters === 1, { what: 'a waiter' })
    await endSession(clients[0]!, address())
    await until(() => clients.length === 2, { what: 'a new session' })
    await until(async () => (await shown(engine, 'x'))?.waiters === 1, { what: 'the waiter again' })
    await engine.release({ ...request('holder', 'x'), token: 0n })
    expect((await waiting).held).toBe(true)
  })

  test('a job that must not run again too soon is kept from it also after its process has gone', async () => {
    const path = newPath()
    const first = newLocks({ path }, { ttl: '5s' })
    expect(await first.once('job', { atLeast: '4s' }, () => 'done')).toEqual({ ran: true, value: 'done' })
    await first.close()
    const engine = newEngine({ path })
    expect(await shown(engine, 'job')).toMatchObject({ resource: 'job' })
    const second = newLocks({ path }, { ttl: '5s' })
    expect(await second.once('job', {}, () => 'too soon')).toEqual({ ran: false })
    // It ends by itself, for those who wait and for those who ask.
    const lease = await second.acquire('job', { wait: '20s' })
    expect(lease.held).toBe(true)
    await lease.release()
    expect(await (await rawClient(address())).children(path)).toEqual([])
  })

  test('what was left to run out can be released by hand', async () => {
    const path = newPath()
    const first = newLocks({ path }, { ttl: '5s' })
    await first.once('job', { atLeast: '5s' }, () => undefined)
    await first.close()
    const engine = newEngine({ path })
    const info = await shown(engine, 'job')
    expect(await engine.release({ ...info!, resources: ['job'], ttlMs: 1000 })).toMatchObject({ ours: true })
    expect(await engine.acquire(request('me', 'job'))).toMatchObject({ kind: 'granted' })
  })
})

describe('answers that are lost', () => {
  test('a place in line whose creation was never confirmed is found again, not taken twice', async () => {
    const path = newPath()
    await using proxy = await startProxy(server.port)
    const engine = newEngine({ path })
    await engine.acquire(request('holder', 'x'))
    const cutOff = newEngine({ path }, `127.0.0.1:${proxy.port}`)
    await cutOff.init?.()
    proxy.cutOnNextReply('_c_waiter-lock-')
    const queued = cutOff.enqueue?.(request('waiter', 'x'), new AbortController().signal)
    await until(() => proxy.lostReplies === 1, { what: 'a lost answer' })
    const raw = await rawClient(address())
    await until(async () => (await shown(engine, 'x'))?.waiters === 1, { what: 'a waiter' })
    expect(await raw.children(`${path}/x`)).toHaveLength(2)
    await engine.release({ ...request('holder', 'x'), token: 0n })
    expect(await queued).toMatchObject({ kind: 'granted' })
    expect(await raw.children(`${path}/x`)).toEqual([expect.stringMatching(/^_c_waiter-lock-\d{10}$/)])
  })

  test('an acquisition that was never confirmed is undone', async () => {
    const path = newPath()
    await using proxy = await startProxy(server.port)
    const cutOff = newEngine({ path }, `127.0.0.1:${proxy.port}`)
    await cutOff.init?.()
    proxy.cutOnNextReply('_c_me-lock-')
    await expect(cutOff.acquire(request('me', 'x'))).rejects.toMatchObject({ code: 'ENGINE', transient: true })
    expect(proxy.lostReplies).toBe(1)
    // The same owner's next znode would be removed with the first one, after it was granted.
    await expect(cutOff.acquire(request('me', 'x'))).rejects.toThrow('is still being undone')
    const raw = await rawClient(address())
    await until(async () => (await raw.children(path)).length === 0, { what: 'nothing left' })
    expect(await newEngine({ path }).acquire(request('you', 'x'))).toMatchObject({ kind: 'granted' })
  })

  test('a release that was never confirmed is made good', async () => {
    const path = newPath()
    await using proxy = await startProxy(server.port)
    const cutOff = newEngine({ path, requestTimeout: 300 }, `127.0.0.1:${proxy.port}`)
    await cutOff.acquire(request('me', 'x'))
    proxy.dropRequests(true)
    await expect(cutOff.release({ ...request('me', 'x'), token: 0n })).rejects.toMatchObject({ transient: true })
    proxy.dropRequests(false)
    proxy.reset()
    const raw = await rawClient(address())
    await until(async () => (await raw.children(path)).length === 0, { what: 'nothing left' })
  })

  test('a server that takes connections and is silent: the attempt ends in time, and so does close', async () => {
    const sockets = new Set<Socket>()
    const silent = createServer((socket) => void sockets.add(socket.on('error', () => undefined).resume()))
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void silent.close())
    const engine = zookeeper(driver, `127.0.0.1:${(silent.address() as AddressInfo).port}`, { maxTtl: '1s' })
    await expect(engine.acquire({ ...request('me', 'x'), ttlMs: 1000 })).rejects.toMatchObject({
      code: 'ENGINE',
      transient: true,
      message: expect.stringContaining('no connection to any server'),
    })
    // It was asked again and again.
    expect(sockets.size).toBeGreaterThan(2)
    await engine.close()
    await until(() => [...sockets].every((socket) => socket.destroyed || socket.readableEnded), { what: 'no sockets' })
  })

  test('close comes back although the server is frozen', async () => {
    const engine = newEngine({ path: newPath() })
    await engine.acquire(request('me', 'x'))
    await server.freeze()
    onTestFinished(() => server.thaw())
    const began = performance.now()
    await engine.close()
    expect(performance.now() - began).toBeLessThan(8000)
  })

  test('after close nothing is granted any more', async () => {
    const engine = newEngine({ path: newPath() })
    await engine.close()
    await expect(engine.acquire(request('me', 'x'))).rejects.toMatchObject({ transient: false })
  })
})

describe('credentials', () => {
  test('the user of docs/operating/databases.md has all that programs need below the chroot, and nothing beside it', async () => {
    await server.shell(pageLines('zookeeper.txt'))
    const as = (auth: string): Engine => newEngine({ auth: { scheme: 'digest', auth } }, address('/locks'))
    const app = (): Engine => as('app:change-this')
    await expect(as('mallory:change-this').acquire(request('me', 'x'))).rejects.toMatchObject({ transient: false })
    expect(await app().init!()).toEqual([])
    expect(await exercised(app, as('app:change-this'), { ttl: '5s' })).toEqual([])
    const found = await app().check(5000)
    expect(found.find(({ id }) => id === 'zookeeper/acl')).toMatchObject({ severity: 'ok' })
    const beside = newEngine({ path: '/other', auth: { scheme: 'digest', auth: 'app:change-this' } }, address('/locks'))
    await expect(beside.acquire(request('me', 'x'))).rejects.toMatchObject({ transient: false })
  })

  test('znodes belong to those who have the same credentials; others are refused, for good', async () => {
    const path = newPath()
    const auth = { scheme: 'digest', auth: 'alice:secret' }
    const [one, two] = [newEngine({ path, auth }), newEngine({ path, auth })]
    await one.acquire(request('one', 'x'))
    expect(await two.acquire(request('two', 'x'))).toMatchObject({ kind: 'refused', holder: 'one' })
    const stranger = newEngine({ path, auth: { scheme: 'digest', auth: 'mallory:Pl4nted-guess' } })
    await expect(stranger.acquire(request('three', 'x'))).rejects.toMatchObject({ transient: false })
    await expect(stranger.release({ ...request('one', 'x'), token: 0n })).rejects.toMatchObject({ transient: false })
    const told = await Promise.allSettled([stranger.acquire(request('three', 'x')), stranger.check(5000)])
    expect(told.map(({ status }) => status)).toEqual(['rejected', 'fulfilled'])
    expect(inspect(told, { depth: Infinity, maxStringLength: null })).not.toContain('Pl4nted')
    const raw = await rawClient(address())
    await expect(raw.remove(`${path}/x/_c_one-lock-0000000000`)).rejects.toMatchObject({ name: 'NO_AUTH' })
    await expect(raw.children(path)).rejects.toMatchObject({ name: 'NO_AUTH' })
    expect(await two.release({ ...request('one', 'x'), token: 0n })).toMatchObject({ ours: true })
  })

  test('they are sent again after a reconnection, before anything else', async () => {
    const path = newPath()
    const clients: driver.Client[] = []
    await using proxy = await startProxy(server.port)
    const auth = { scheme: 'digest', auth: 'alice:secret' }
    const engine = zookeeper(spyingDriver(clients), `127.0.0.1:${proxy.port}`, { path, auth, maxTtl: '5s' })
    onTestFinished(() => engine.close())
    const outcome = await engine.acquire(request('one', 'x'))
    const token = outcome.kind === 'granted' ? outcome.token : 0n
    const disconnected = new Promise<void>((resolve) => clients[0]!.once('disconnected', resolve))
    proxy.reset()
    await disconnected
    expect(await engine.extend([{ ...request('one', 'x'), token }])).toEqual([{ kind: 'held' }])
  })
})

describe('sessions and ttls', () => {
  test('a ttl beyond half of the longest session is refused with the reason', async () => {
    const locks = newLocks({ path: newPath(), maxTtl: '30s' }, { ttl: '20s' })
    await expect(locks.acquire('x')).rejects.toThrow(
      new RangeError(
        'ttl: expected at most 5000 ms, half of the session that these servers grant (10000 ms), got 20000; ' +
          'maxSessionTimeout in their configuration allows for more',
      ),
    )
  })

  test('the default ttl is one that servers with default settings grant', async () => {
    const engine = newEngine({ maxTtl: '20s' })
    expect(engine.limits.maxTtlMs).toBe(20_000)
    expect(() => createLocks(engine, { ttl: '21s' })).toThrow('zookeeper(driver, servers, { maxTtl }) allows for more')
  })
})

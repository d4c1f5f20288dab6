import { spawn } from 'node:child_process'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { etcd, type EtcdOptions, type Fetch } from '../../../src/engines/etcd/index.ts'
import type { Engine } from '../../../src/engine.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { program } from '../../../harness/binaries.ts'
import { startProxy } from '../../../harness/faults/proxy.ts'
import { startEtcd, startEtcdCluster, type EtcdCluster, type EtcdServer } from '../../../harness/servers/etcd.ts'
import { until } from '../../../harness/until.ts'
import { groupsOf, lineUp, queueLength, race, reader } from '../readers-and-writers.ts'
import { collect, granted, requestFor } from '../requests.ts'
import { base64, contents, watchedFetch } from './setup.ts'

let server: EtcdServer
let cluster: EtcdCluster

beforeAll(async () => {
  ;[server, cluster] = await Promise.all([startEtcd(), startEtcdCluster()])
})

afterAll(() => Promise.all([server.stop(), cluster.stop()]))

function engine(options: EtcdOptions = {}, urls: string | readonly string[] = server.url): Engine {
  const made = etcd(urls, options)
  onTestFinished(() => made.close())
  return made
}

function newLocks(urls: string | readonly string[]): Locks {
  const locks = createLocks(etcd(urls), { ttl: '20s' })
  onTestFinished(() => locks.close())
  return locks
}

/** As each member would be asked first by some process. */
function rotated(turn: number): string[] {
  return [...cluster.urls.slice(turn), ...cluster.urls.slice(0, turn)]
}

/** As after an answer that was lost. */
const twice: Fetch = async (url, init) => {
  if (init.body?.includes('request_put') === true) await globalThis.fetch(url, init)
  return globalThis.fetch(url, init)
}

const never = new AbortController().signal
const NOTHING = { keys: [], leases: [] }

test('a mixed queue over two clients is served in its order, readers side by side', async () => {
  const engines = [engine(), engine()]
  const blocker = await granted(engines[0]!, requestFor('mixed'))
  const queue = await lineUp(engines, 'mixed', 'wrrwr')
  await engines[0]!.release(blocker)
  await queue.over
  expect(groupsOf(queue.events)).toEqual(['w0', 'r1 r2', 'w3', 'r4'])
  expect(queue.tokens).toEqual([...queue.tokens].sort((a, b) => (a < b ? -1 : 1)))
  expect(await contents(server)).toEqual(NOTHING)
})

test('readers and writers of three clients race for resources that cross each other: no writer is beside anyone', async () => {
  const locks = [0, 1, 2].map((turn) => newLocks(rotated(turn)))
  await race(locks, [['x', 'y'], ['y', 'z'], ['x'], ['x', 'y', 'z']])
})

test('a reader watches the last writer before it, and a writer the last key before it', async () => {
  const watched = new Map<string, Set<string>>()
  const spy = (name: string): Fetch =>
    watchedFetch((path, body: { create_request?: { key: string } }) => {
      if (path !== '/v3/watch') return
      const key = Buffer.from(body.create_request!.key, 'base64').toString()
      watched.set(name, (watched.get(name) ?? new Set()).add(key))
    })
  const holder = engine()
  const [one, two] = [await reader(holder, 'watched'), await reader(holder, 'watched')]
  const requests = [true, false, true, true, false].map((shared) => ({ ...requestFor('watched'), shared }))
  const [joins, writer, third, fourth, last] = requests
  const turns = []
  for (const [index, request] of requests.entries()) {
    turns.push(engine({ fetch: spy(`place ${index}`) }).enqueue!(request, never))
    await until(async () => (await queueLength(holder, 'watched')) === index + 3, { what: `place ${index}` })
  }
  await until(() => watched.size === 4, { what: 'their watches' })
  const { token } = await turns[0]!
  const folder = 'ringfence/watched/'
  expect(watched).toEqual(
    new Map([
      ['place 1', new Set([`${folder}!shared/${joins!.owner}`])],
      ['place 2', new Set([folder + writer!.owner])],
      ['place 3', new Set([folder + writer!.owner])],
      ['place 4', new Set([`${folder}!shared/${fourth!.owner}`])],
    ]),
  )
  for (const lease of [one, two, { ...joins!, token }]) await holder.release(lease)
  for (const [index, request] of [writer!, third!, fourth!, last!].entries())
    await holder.release({ ...request, token: (await turns[index + 1]!).token })
  expect(await contents(server)).toEqual(NOTHING)
})

test('an exclusive and a shared lease cost the same requests, and a reader that joins others no more', async () => {
  const asked: string[] = []
  const one = engine({ fetch: watchedFetch((path) => void asked.push(path.slice('/v3/'.length))) })
  const costs = async (shared: boolean): Promise<string[]> => {
    const lease = await granted(one, { ...requestFor('cost'), shared })
    expect(await one.release(lease)).toMatchObject({ ours: true })
    return asked.splice(0)
  }
  const expected = ['kv/txn', 'lease/grant', 'kv/txn', 'kv/txn', 'lease/revoke']
  expect(await costs(false)).toEqual(expected)
  expect(await costs(true)).toEqual(expected)
  const other = engine()
  const lease = await reader(other, 'cost')
  expect(await costs(true)).toEqual(expected)
  await other.release(lease)
})

test('a reader that is refused writes nothing, and is told who holds it and not who waits', async () => {
  const [one, two] = [engine(), engine()]
  const lease = await reader(one, ['a', 'b'])
  const stop = new AbortController()
  const waiting = two.enqueue!(requestFor('b'), stop.signal).catch((reason: unknown) => reason)
  await until(async () => (await queueLength(one, 'b')) === 2, { what: 'a writer that waits' })
  const before = await contents(server)
  const outcome = await one.acquire({ ...requestFor(['b', 'c']), shared: true })
  expect(outcome).toMatchObject({ kind: 'refused', reason: 'held', holder: lease.owner })
  expect(await contents(server)).toEqual(before)
  // Where no writer waits, there is room.
  await one.release(await reader(two, ['a', 'c']))
  stop.abort('enough')
  expect(await waiting).toBe('enough')
  await one.release(lease)
  expect(await contents(server)).toEqual(NOTHING)
})

test('when a writer that waits gives up, the readers behind it join those before it', async () => {
  const [one, two] = [engine(), engine()]
  const lease = await reader(one, 'given-up')
  const stop = new AbortController()
  const waiting = two.enqueue!(requestFor('given-up'), stop.signal).catch((reason: unknown) => reason)
  await until(async () => (await queueLength(one, 'given-up')) === 2, { what: 'a writer that waits' })
  const request = { ...requestFor('given-up'), shared: true }
  const behind = one.enqueue!(request, never)
  await until(async () => (await queueLength(one, 'given-up')) === 3, { what: 'a reader behind it' })
  stop.abort('enough')
  expect(await waiting).toBe('enough')
  const { token } = await behind
  expect(await one.extend([lease, { ...request, token }])).toEqual([{ kind: 'held' }, { kind: 'held' }])
  for (const each of [lease, { ...request, token }]) expect(await two.release(each)).toMatchObject({ ours: true })
})

test('a reader whose wait is aborted leaves nothing, and nobody else notices', async () => {
  const [one, two] = [engine(), engine()]
  const lease = await granted(one, requestFor('aborted'))
  const stop = new AbortController()
  const waiting = two.enqueue!({ ...requestFor('aborted'), shared: true }, stop.signal)
  await until(async () => (await queueLength(one, 'aborted')) === 2, { what: 'a reader that waits' })
  const reason = new Error('changed my mind')
  stop.abort(reason)
  await expect(waiting).rejects.toBe(reason)
  expect(await one.extend([lease])).toEqual([{ kind: 'held' }])
  await one.release(lease)
  expect(await contents(server)).toEqual(NOTHING)
})

test('a reader in the queue whose place was removed says so', async () => {
  const one = engine()
  const lease = await granted(one, requestFor('removed'))
  const request = { ...requestFor('removed', 2000), shared: true }
  const waiting = one.enqueue!(request, never).catch((error: unknown) => error)
  await until(async () => (await queueLength(one, 'removed')) === 2, { what: 'a reader that waits' })
  await server.call('kv/deleterange', { key: base64(`ringfence/removed/!shared/${request.owner}`) })
  expect(await waiting).toMatchObject({ code: 'ENGINE', transient: true, message: /place in the queue is gone/ })
  await one.release(lease)
})

test('a reader whose request was sent twice is granted once, with the token of its first key', async () => {
  const other = await reader(engine(), 'twice')
  const one = engine({ fetch: twice })
  const lease = await reader(one, 'twice')
  expect(await one.extend([lease])).toEqual([{ kind: 'held' }])
  const [, info] = await collect(one.inspect('twice'))
  expect(info).toMatchObject({ owner: lease.owner, token: lease.token, shared: true })
  for (const each of [lease, other]) expect(await one.release(each)).toMatchObject({ ours: true })
  expect(await contents(server)).toEqual(NOTHING)
})

test('a reader whose grant was not answered is undone, and the others stay', async () => {
  await using proxy = await startProxy(server.port)
  const fetch = watchedFetch((path, body: { compare?: object[] }) => {
    if (path === '/v3/kv/txn' && body.compare!.length > 0) proxy.dropReplies(true)
    if (path === '/v3/lease/revoke') proxy.dropReplies(false)
  })
  const other = engine()
  const lease = await reader(other, 'undone')
  const cutOff = engine({ fetch, requestTimeout: 300 }, `http://127.0.0.1:${proxy.port}`)
  await expect(cutOff.acquire({ ...requestFor('undone'), shared: true })).rejects.toMatchObject({ transient: true })
  await until(async () => (await queueLength(other, 'undone')) === 1, { what: 'the undoing' })
  expect(await other.extend([lease])).toEqual([{ kind: 'held' }])
  await other.release(lease)
  await until(async () => (await contents(server)).leases.length === 0, { what: 'no etcd lease' })
})

test('a hundred resources are shared at once, at once and from the queue', async () => {
  const names = Array.from({ length: 100 }, (_, index) => `hundred-${index}`)
  const [one, two] = [engine(), engine()]
  const lease = await reader(one, names)
  const again = await reader(two, names)
  expect(await one.extend([lease, again])).toEqual([{ kind: 'held' }, { kind: 'held' }])
  const request = { ...requestFor(names), shared: true }
  const { token } = await two.enqueue!(request, never)
  expect(await one.acquire(requestFor(names.at(-1)!))).toMatchObject({ kind: 'refused', holder: lease.owner })
  for (const each of [lease, again, { ...request, token }])
    expect(await two.release(each)).toMatchObject({ ours: true })
  expect(await contents(server)).toEqual(NOTHING)
})

test('another ttl of a reader moves its own keys alone', async () => {
  const one = engine()
  const [first, second] = [await reader(one, 'longer', 2000), await reader(one, 'longer')]
  expect(await one.extend([{ ...first, ttlMs: 60_000 }])).toEqual([{ kind: 'held' }])
  const infos = await collect(one.inspect('longer'))
  expect(infos.map(({ owner, token }) => ({ owner, token }))).toEqual(
    [first, second].map(({ owner, token }) => ({ owner, token })),
  )
  expect(infos[0]!.remainingMs).toBeGreaterThan(50_000)
  expect(infos[1]!.remainingMs).toBeLessThanOrEqual(20_000)
  for (const each of [first, second]) expect(await one.release(each)).toMatchObject({ ours: true })
})

test.each([true, false])('etcdctl lock and leases keep each other out (shared: %s)', async (shared) => {
  const { path, env } = program('etcdctl')
  const one = engine()
  const lease = await granted(one, { ...requestFor('ctl'), shared })
  const ctl = spawn(path, ['--endpoints', server.url, 'lock', 'ringfence/ctl'], { env: { ...process.env, ...env } })
  onTestFinished(() => void ctl.kill('SIGKILL'))
  let printed = ''
  ctl.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text))
  await until(async () => (await queueLength(one, 'ctl')) === 2, { what: 'etcdctl in the queue' })
  const request = { ...requestFor('ctl'), shared }
  expect(await one.acquire(request)).toMatchObject({ kind: 'refused', holder: lease.owner })
  const waiting = one.enqueue!(request, never)
  await until(async () => (await queueLength(one, 'ctl')) === 3, { what: 'a place behind it' })
  expect(printed).toBe('')
  await one.release(lease)
  await until(() => printed.startsWith('ringfence/ctl/'), { what: 'etcdctl has the lock' })
  expect(await one.acquire({ ...requestFor('ctl'), shared })).toMatchObject({ kind: 'refused' })
  ctl.kill('SIGINT')
  const { token } = await waiting
  expect(token).toBeGreaterThan(lease.token)
  await one.release({ ...request, token })
})

test.each(['killed', 'frozen'] as const)(
  'the leader is %s in the middle of a mixed queue: the readers keep their leases, and all are served in their order',
  async (how) => {
    const holders = [0, 1].map((turn) => newLocks(rotated(turn)))
    const leases = await Promise.all(holders.map((locks) => locks.acquire(how, { shared: true })))
    const engines = [1, 2].map((turn) => engine({}, rotated(turn)))
    const queue = await lineUp(engines, how, 'wrrwr')
    const old = await cluster.leader()
    await (how === 'killed' ? old.kill() : old.freeze())
    await until(async () => (await cluster.leader()) !== old, { what: 'another leader', withinMs: 30_000 })
    for (const lease of leases) {
      await until(() => lease.extend().then(() => true), { what: 'a renewal', withinMs: 20_000 })
      expect(await lease.release()).toBe(true)
    }
    await queue.over
    expect(groupsOf(queue.events)).toEqual(['w0', 'r1 r2', 'w3', 'r4'])
    await (how === 'killed' ? old.restart() : old.thaw())
  },
)

test('a server restarts while readers hold and others wait: nobody loses a lease or a place', async () => {
  const [one, two] = [engine(), engine()]
  const leases = [await reader(one, 'restart'), await reader(two, 'restart')]
  const queue = await lineUp([one, two], 'restart', 'wrr')
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

import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { etcd, type EtcdOptions } from '../../../src/engines/etcd/index.ts'
import type { Engine, LeaseRef } from '../../../src/engine.ts'
import { startProxy, type Proxy } from '../../../harness/faults/proxy.ts'
import { startEtcd, startEtcdCluster, type EtcdServer } from '../../../harness/servers/etcd.ts'
import { until } from '../../../harness/until.ts'
import { collect, granted, requestFor } from '../requests.ts'
import { base64, contents, watchedFetch } from './setup.ts'

let server: EtcdServer
let proxy: Proxy

beforeAll(async () => {
  server = await startEtcd()
  proxy = await startProxy(server.port)
})

afterAll(async () => {
  await proxy.close()
  await server.stop()
})

function engine(urls: string | string[] = server.url, options: EtcdOptions = {}): Engine {
  const made = etcd(urls, options)
  onTestFinished(() => made.close())
  return made
}

function proxyUrl(): string {
  return `http://127.0.0.1:${proxy.port}`
}

function heal(): void {
  proxy.dropReplies(false)
  proxy.dropRequests(false)
}

test('a refused attempt writes nothing, and a release leaves nothing', async () => {
  const one = engine()
  const lease = await granted(one, requestFor(['a', 'b']))
  const revision = async () =>
    ((await server.call('kv/range', { key: base64('x') })) as { header: { revision: string } }).header.revision
  const before = [await revision(), (await contents(server)).leases]
  expect(await one.acquire(requestFor(['b', 'c']))).toMatchObject({ kind: 'refused', holder: lease.owner })
  expect([await revision(), (await contents(server)).leases]).toEqual(before)
  expect(await one.release(lease)).toEqual({ ours: true, awaited: 0 })
  expect(await contents(server)).toEqual({ keys: [], leases: [] })
})

test('another ttl moves the keys to another etcd lease: same token, and any process can release it', async () => {
  const one = engine()
  const lease = await granted(one, requestFor(['a', 'b'], 2000))
  const longer = { ...lease, ttlMs: 60_000 }
  // There, back, and there again.
  for (const wanted of [longer, longer, lease, longer]) expect(await one.extend([wanted])).toEqual([{ kind: 'held' }])
  const [info] = await collect(engine().inspect('a'))
  expect(info).toMatchObject({ owner: lease.owner, token: lease.token })
  expect(info!.remainingMs).toBeGreaterThan(50_000)
  // The one of the shorter ttl has no keys and ends by itself; the keys stay.
  await until(async () => (await contents(server)).leases.length === 1, { what: 'the first etcd lease to go' })
  expect((await contents(server)).keys).toHaveLength(2)
  // As a person would, who knows the owner and not the ttl.
  expect(await engine().release({ ...lease, token: 0n })).toMatchObject({ ours: true })
  expect(await one.extend([longer])).toEqual([{ kind: 'lost' }])
  expect(await contents(server)).toEqual({ keys: [], leases: [] })
})

test('a change of the ttl that races with a release does not revive the lease', async () => {
  const one = engine()
  const lease = await granted(one, requestFor('raced'))
  const racing = engine(server.url, {
    // After the lease was seen to be held, and before it is changed.
    fetch: watchedFetch(async (path) => void (path === '/v3/lease/grant' && (await one.release(lease)))),
  })
  expect(await racing.extend([{ ...lease, ttlMs: 60_000 }])).toEqual([{ kind: 'lost' }])
  await until(async () => (await contents(server)).leases.length === 0, { what: 'no leases' })
  expect((await contents(server)).keys).toEqual([])
})

test('a lease that is asked for again by its owner has its whole time again', async () => {
  const one = engine()
  const request = requestFor('again', 30_000)
  const lease = await granted(one, request)
  const remainingMs = async (): Promise<number> => (await collect(one.inspect('again')))[0]!.remainingMs!
  await until(async () => (await remainingMs()) <= 27_000, { what: 'some seconds to pass' })
  expect(await one.acquire(request)).toEqual({ kind: 'granted', token: lease.token })
  expect(await remainingMs()).toBeGreaterThan(27_000)
  await one.release(lease)
})

test('a ttl of part of a second is kept for the whole of it', async () => {
  const one = engine()
  // A machine that is busy for a second sees the next lower number.
  const remainingMs = async (): Promise<number> => {
    const lease = await granted(one, requestFor('a', 1500))
    const [info] = await collect(one.inspect('a'))
    await one.release(lease)
    return info?.remainingMs ?? 0
  }
  expect(await until(async () => (await remainingMs()) === 2000, { what: 'two whole seconds' })).toBe(true)
})

test('200 leases are renewed at once', async () => {
  const one = engine()
  const leases: LeaseRef[] = []
  await Promise.all(
    Array.from({ length: 200 }, async (_, i) => leases.push(await granted(one, requestFor(`many-${i}`)))),
  )
  const startedMs = performance.now()
  const kinds = (await one.extend(leases)).map(({ kind }) => kind)
  console.log(`etcd: 200 leases renewed and proved in ${Math.round(performance.now() - startedMs)} ms`)
  expect(kinds).toEqual(leases.map(() => 'held'))
  await Promise.all(leases.map((lease) => one.release(lease)))
  expect(await contents(server)).toEqual({ keys: [], leases: [] })
})

test('inspect shows who holds since when and how many wait, and other keys not at all', async () => {
  const one = engine()
  const lease = await granted(one, requestFor('seen'))
  const controller = new AbortController()
  const waiting = one.enqueue!(requestFor('seen'), controller.signal).catch((reason: unknown) => reason)
  await server.call('kv/put', { key: base64('ringfence/of-other-software'), value: base64('x') })
  const [info] = await until(
    async () => {
      const all = await collect(one.inspect())
      return all[0]?.waiters === 1 ? all : undefined
    },
    { what: 'a waiter' },
  )
  expect(info).toMatchObject({ resource: 'seen', owner: lease.owner, token: lease.token, waiters: 1 })
  expect(info!.heldMs).toBeGreaterThanOrEqual(0)
  expect(info!.heldMs).toBeLessThan(20_000)
  controller.abort('enough')
  expect(await waiting).toBe('enough')
  await one.release(lease)
  await server.call('kv/deleterange', { key: base64('ringfence/of-other-software') })
})

test('inspect goes through more keys than fit in one answer, each resource once', async () => {
  const places = Array.from({ length: 600 }, (_, i) => ({
    request_put: { key: base64(`ringfence/page-${Math.floor(i / 3)}/owner-${i}`), value: base64('{}') },
  }))
  for (let from = 0; from < places.length; from += 100)
    await server.call('kv/txn', { success: places.slice(from, from + 100) })
  const all = await collect(engine().inspect())
  expect(new Set(all.map(({ resource }) => resource)).size).toBe(200)
  expect(all).toHaveLength(200)
  expect(new Set(all.map(({ waiters }) => waiters))).toEqual(new Set([2]))
  await server.call('kv/deleterange', { key: base64('ringfence/'), range_end: base64('ringfence0') })
})

test('the reply to the grant is lost: it is asked for again, and granted once', async () => {
  const one = engine(proxyUrl())
  for (const what of ['/v3/lease/grant', '/v3/kv/txn']) {
    const request = requestFor('lost-reply')
    const before = proxy.lostReplies
    // The first transaction of an attempt only looks.
    proxy.cutOnNextReply(what === '/v3/kv/txn' ? 'request_put' : what)
    const lease = await granted(one, request)
    expect(proxy.lostReplies).toBe(before + 1)
    expect(await collect(one.inspect('lost-reply'))).toMatchObject([{ owner: request.owner, token: lease.token }])
    expect(await one.release(lease)).toMatchObject({ ours: true })
  }
  expect(await contents(server)).toEqual({ keys: [], leases: [] })
})

test('an attempt that is not answered in time rejects, and is undone as soon as the server can be reached', async () => {
  const fetch = watchedFetch((path, body: { compare?: object[] }) => {
    if (path === '/v3/kv/txn' && body.compare!.length > 0) proxy.dropReplies(true)
    if (path === '/v3/lease/revoke' && revokes++ === 0) proxy.dropRequests(true)
  })
  let revokes = 0
  const one = engine(proxyUrl(), { fetch, requestTimeout: 300 })
  onTestFinished(heal)
  await expect(one.acquire(requestFor('undone'))).rejects.toMatchObject({
    code: 'ENGINE',
    transient: true,
    resources: ['undone'],
    message: expect.stringContaining('no answer within 300 ms'),
  })
  // It did land.
  expect((await contents(server)).leases).toHaveLength(1)
  await until(() => revokes > 0, { what: 'a first try to undo it' })
  heal()
  await until(async () => (await contents(server)).leases.length === 0, { what: 'the undoing', withinMs: 15_000 })
  expect((await contents(server)).keys).toEqual([])
})

test('an adoption for a shorter time whose answer is lost leaves its holder the time that it counts on', async () => {
  const fetch = watchedFetch((path, body: { success?: object[] }) => {
    if (path === '/v3/kv/txn' && body.success?.some((one) => 'request_put' in one) === true) proxy.dropReplies(true)
  })
  const [holder, adopter] = [engine(), engine(proxyUrl(), { fetch, requestTimeout: 1000 })]
  const lease = await granted(holder, requestFor('shorter', 30_000))
  onTestFinished(heal)
  await expect(adopter.adopt!(lease, requestFor('shorter', 5000))).rejects.toMatchObject({ code: 'ENGINE' })
  const remainingMs = async (): Promise<number> => (await collect(holder.inspect('shorter')))[0]?.remainingMs ?? 0
  // It did land.
  expect(await remainingMs()).toBeLessThan(20_000)
  heal()
  await until(async () => (await remainingMs()) > 20_000, { what: 'the time of its holder' })
  expect(await holder.extend([lease])).toEqual([{ kind: 'held' }])
  expect(await holder.release(lease)).toMatchObject({ ours: true })
})

test.each([
  ['requests are lost', (): void => proxy.dropRequests(true), proxyUrl],
  ['answers are lost', (): void => proxy.dropReplies(true), proxyUrl],
  ['connections are refused', (): void => undefined, (): string => 'http://127.0.0.1:9'],
])('an adoption while %s may be tried again, and says so', async (what, lose, url) => {
  const holder = engine()
  const lease = await granted(holder, requestFor(what, 30_000))
  const adopter = engine(url(), { requestTimeout: 500 })
  onTestFinished(heal)
  lose()
  const again = { name: 'EngineError', transient: true, resources: [what] }
  await expect(adopter.adopt!(lease, requestFor(what, 30_000))).rejects.toMatchObject(again)
  heal()
  expect(await engine().adopt!(lease, requestFor(what, 30_000))).toMatchObject({ kind: 'granted' })
  expect(await holder.release(lease)).toMatchObject({ ours: true })
})

test('a member that does not answer is left for the next one, which is then asked first', async () => {
  const asked: string[] = []
  const one = engine([proxyUrl(), server.url], {
    requestTimeout: 300,
    fetch: async (url, init) => {
      asked.push(new URL(url).port)
      return globalThis.fetch(url, init)
    },
  })
  proxy.dropRequests(true)
  onTestFinished(() => proxy.dropRequests(false))
  const lease = await granted(one, requestFor('failover'))
  expect(asked.filter((port) => port === String(proxy.port))).toHaveLength(1)
  expect(await one.release(lease)).toMatchObject({ ours: true })
  expect(asked.filter((port) => port === String(proxy.port))).toHaveLength(1)
})

test('of members that all fail, the error tells each one’s reason', async () => {
  const one = engine(['http://127.0.0.1:9', 'http://127.0.0.1:10'])
  await expect(one.acquire(requestFor('a'))).rejects.toThrow(
    /^etcd: http:\/\/127\.0\.0\.1:9: connect ECONNREFUSED.*; http:\/\/127\.0\.0\.1:10: connect ECONNREFUSED/,
  )
  expect(await one.extend([{ ...requestFor('a'), token: 1n }])).toMatchObject([{ kind: 'unknown' }])
})

test('a server that is not etcd is distinguished from one that refuses', async () => {
  const options = { fetch: async () => new Response('<html>hello</html>') }
  await expect(engine(server.url, options).acquire(requestFor('a'))).rejects.toThrow(
    'etcd: expected an answer from etcd, got 200 <html>hello</html>',
  )
})

test('closing ends the connections and the waits', async () => {
  await using proxy = await startProxy(server.port)
  const one = etcd(`http://127.0.0.1:${proxy.port}`)
  const lease = await granted(one, requestFor('closing'))
  await one.release(lease)
  expect(proxy.connections).toBeGreaterThan(0)
  await one.close()
  await until(() => proxy.connections === 0, { what: 'no connections', withinMs: 3500 })
  await expect(one.acquire(requestFor('closing'))).rejects.toThrow('closed')
})

test('a renewal during which the leader changed proves nothing; the next one does', async () => {
  await using cluster = await startEtcdCluster()
  const survivor = (await cluster.leader()) === cluster.nodes[0]! ? cluster.nodes[1]! : cluster.nodes[0]!
  let armed = false
  const one = engine(survivor.url, {
    requestTimeout: '20s',
    async fetch(url, init) {
      const reply = await globalThis.fetch(url, init)
      if (!armed || !url.endsWith('/v3/lease/keepalive')) return reply
      armed = false
      const old = await cluster.leader()
      await old.kill()
      await until(async () => (await cluster.leader()) !== old, { what: 'another leader' })
      return reply
    },
  })
  const lease = await granted(one, requestFor('term', 30_000))
  expect(await one.extend([lease])).toEqual([{ kind: 'held' }])
  armed = true
  const [answer] = await one.extend([lease])
  expect(answer).toMatchObject({ kind: 'unknown', cause: { message: 'the leader changed during the renewal' } })
  expect(await one.extend([lease])).toEqual([{ kind: 'held' }])
  await one.release(lease)
})

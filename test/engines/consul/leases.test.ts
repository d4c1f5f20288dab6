import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { consul, type Fetch } from '../../../src/engines/consul/index.ts'
import type { LeaseRef } from '../../../src/engine.ts'
import { createLocks } from '../../../src/locks.ts'
import { startProxy, type Proxy } from '../../../harness/faults/proxy.ts'
import { startConsul, type ConsulServer } from '../../../harness/servers/consul.ts'
import { until } from '../../../harness/until.ts'
import { collect, granted, requestFor } from '../requests.ts'
import { staysWithItsHolder } from '../lost-adoptions.ts'
import { open, contents } from './setup.ts'

let server: ConsulServer
let proxy: Proxy

beforeAll(async () => {
  server = await startConsul()
  proxy = await startProxy(server.port)
})

afterAll(async () => {
  await proxy.close()
  await server.stop()
})

const NOTHING = { keys: [], sessions: [] }

function proxyUrl(): string {
  return `http://127.0.0.1:${proxy.port}`
}

function heal(): void {
  proxy.dropReplies(false)
  proxy.dropRequests(false)
}

test('a refused attempt makes no session, and a release leaves nothing', async () => {
  const one = open(server.url)
  const lease = await granted(one, requestFor(['a', 'b']))
  expect(await one.acquire(requestFor(['b', 'c']))).toMatchObject({ kind: 'refused', holder: lease.owner })
  expect(await contents(server)).toEqual({ keys: ['ringfence/a', 'ringfence/b'], sessions: [lease.owner] })
  expect(await one.release(lease)).toEqual({ ours: true, awaited: 0 })
  expect(await contents(server)).toEqual(NOTHING)
})

test('another ttl moves the keys to another session: same token, and any process can release it', async () => {
  const one = open(server.url)
  const lease = await granted(one, requestFor(['a', 'b'], 5000))
  const longer = { ...lease, ttlMs: 60_000 }
  expect(await one.extend([longer])).toEqual([{ kind: 'held' }])
  expect(await one.extend([longer])).toEqual([{ kind: 'held' }])
  const [info] = await collect(open(server.url).inspect('a'))
  expect(info).toMatchObject({ owner: lease.owner, token: lease.token, remainingMs: 60_000 })
  expect(info!.heldMs).toBeLessThan(20_000)
  await until(async () => (await contents(server)).sessions.length === 1, { what: 'the first session to go' })
  // As a person would, who knows the owner and not the ttl.
  expect(await open(server.url).release({ ...lease, token: 0n })).toMatchObject({ ours: true })
  expect(await one.extend([longer])).toEqual([{ kind: 'lost' }])
  expect(await contents(server)).toEqual(NOTHING)
})

test('a change of the ttl that races with a release does not revive the lease', async () => {
  const one = open(server.url)
  const lease = await granted(one, requestFor('raced'))
  const racing = open(server.url, {
    async fetch(url, init) {
      // After the lease was seen to be held, and before it is changed.
      if (url.includes('/session/create')) await one.release(lease)
      return globalThis.fetch(url, init)
    },
  })
  expect(await racing.extend([{ ...lease, ttlMs: 60_000 }])).toEqual([{ kind: 'lost' }])
  await until(async () => (await contents(server)).sessions.length === 0, { what: 'no sessions' })
  expect((await contents(server)).keys).toEqual([])
})

test('a lease that is asked for again by its owner is renewed', async () => {
  const renewals: string[] = []
  const one = open(server.url, {
    async fetch(url, init) {
      if (url.includes('/session/renew/')) renewals.push(url)
      return globalThis.fetch(url, init)
    },
  })
  const request = requestFor('again')
  const lease = await granted(one, request)
  expect(renewals).toHaveLength(0)
  expect(await one.acquire(request)).toEqual({ kind: 'granted', token: lease.token })
  expect(renewals).toHaveLength(1)
  await one.release(lease)
})

test('as many resources as fit in a transaction are granted at once; more are refused by their number', async () => {
  const one = open(server.url)
  const names = Array.from({ length: 33 }, (_, index) => `many-${index}`)
  await expect(one.acquire(requestFor(names))).rejects.toThrow(
    /^resource: expected at most 32 names at once, .*, got 33; take one name for all of them$/,
  )
  const lease = await granted(one, requestFor(names.slice(1)))
  expect(await one.extend([lease])).toEqual([{ kind: 'held' }])
  expect(await one.extend([{ ...lease, ttlMs: 30_000 }])).toEqual([{ kind: 'held' }])
  expect(new Set((await collect(one.inspect())).map(({ token }) => token))).toEqual(new Set([lease.token]))
  expect(await one.release(lease)).toMatchObject({ ours: true })
})

test('200 leases are renewed at once', async () => {
  const one = open(server.url)
  const leases: LeaseRef[] = []
  // Not all at once: a server takes 200 connections from one machine.
  for (let from = 0; from < 200; from += 50) {
    const names = Array.from({ length: 50 }, (_, index) => `renewed-${from + index}`)
    leases.push(...(await Promise.all(names.map((name) => granted(one, requestFor(name))))))
  }
  const startedMs = performance.now()
  const kinds = (await one.extend(leases)).map(({ kind }) => kind)
  console.log(`consul: 200 leases renewed in ${Math.round(performance.now() - startedMs)} ms`)
  expect(kinds).toEqual(leases.map(() => 'held'))
  for (let from = 0; from < 200; from += 50)
    await Promise.all(leases.slice(from, from + 50).map((lease) => one.release(lease)))
})

test('a key of other software is in the way, and shown without an end', async () => {
  const one = open(server.url)
  await server.call('PUT', 'kv/ringfence/foreign', 'hello')
  expect(await one.acquire(requestFor('foreign'))).toEqual({ kind: 'refused', reason: 'held' })
  expect(await collect(one.inspect('foreign'))).toMatchObject([{ owner: 'unknown', remainingMs: undefined }])
  await server.call('DELETE', 'kv/ringfence/foreign')
})

/** Sessions on a node of their own, which is then removed: as when an agent leaves the cluster. */
async function endSessionEarly(lockDelay?: number) {
  await server.call('PUT', 'catalog/register', '{"Node":"leaving","Address":"127.0.0.2"}')
  const one = open(server.url, { node: 'leaving', ...(lockDelay === undefined ? {} : { lockDelay }) })
  const lease = await granted(one, requestFor('early', 3000))
  await server.call('PUT', 'catalog/deregister', '{"Node":"leaving"}')
  expect(await contents(server)).toEqual(NOTHING)
  const endedMs = performance.now()
  expect(await one.extend([lease])).toEqual([{ kind: 'lost' }])
  return { lease, endedMs }
}

test('a session that ends early leaves a lock-delay as long as the ttl: nobody gets in while its holder may count on it', async () => {
  const { lease, endedMs } = await endSessionEarly()
  const two = open(server.url)
  expect(await two.acquire(requestFor('early'))).toEqual({ kind: 'refused', reason: 'held' })
  const locks = createLocks(consul(server.url, { sessionTtlMin: '1s' }), { wait: '20s', ttl: '5s' })
  onTestFinished(() => locks.close())
  await using next = await locks.acquire('early')
  // The end was looked at a little after it happened.
  expect(performance.now() - endedMs).toBeGreaterThan(2500)
  expect(next.token).toBeGreaterThan(lease.token)
})

test('with a lockDelay of 0 the next one gets in at once, with a greater token', async () => {
  const { lease } = await endSessionEarly(0)
  const two = open(server.url)
  const next = await granted(two, requestFor('early'))
  expect(next.token).toBeGreaterThan(lease.token)
  await two.release(next)
})

test('a session of a node registered for the purpose needs no agent of its own', async () => {
  await server.call('PUT', 'catalog/register', '{"Node":"locks","Address":"127.0.0.2"}')
  const one = open(server.url, { node: 'locks', datacenter: 'dc1' })
  const lease = await granted(one, requestFor('a'))
  const sessions = (await server.call('GET', 'session/node/locks')) as unknown[]
  expect(sessions).toMatchObject([{ Name: lease.owner, Node: 'locks', NodeChecks: [] }])
  await one.release(lease)
  await expect(open(server.url, { node: 'nowhere' }).acquire(requestFor('a'))).rejects.toMatchObject({
    transient: false,
    message: expect.stringContaining('Missing node registration'),
  })
  await expect(open(server.url, { datacenter: 'mars' }).acquire(requestFor('a'))).rejects.toMatchObject({
    transient: false,
    message: expect.stringContaining('No path to datacenter'),
  })
})

test('a ttl below ten seconds is refused with the reason, before anything is asked', async () => {
  const locks = createLocks(consul(server.url))
  onTestFinished(() => locks.close())
  await expect(locks.tryAcquire('a', { ttl: '9s' })).rejects.toThrow(
    /^ttl: expected 10 s to 24 h, got '9s'.*session_ttl_min.*sessionTtlMin/,
  )
})

test('a server that keeps no such short session says so, and the error says what to do', async () => {
  await using strict = await startConsul({ hcl: 'session_ttl_min = "10s"' })
  await expect(open(strict.url).acquire(requestFor('a', 5000))).rejects.toMatchObject({
    code: 'ENGINE',
    transient: false,
    message: expect.stringMatching(/^consul: Invalid Session TTL.*session_ttl_min.*sessionTtlMin/),
  })
  const findings = await open(strict.url).check(5000)
  expect(findings.filter(({ severity }) => severity === 'critical')).toMatchObject([{ id: 'consul/session-ttl-min' }])
})

test('the reply to the lock is lost: it is asked for again, and granted once', async () => {
  const one = open(proxyUrl())
  const before = proxy.lostReplies
  proxy.cutOnNextReply('check-not-exists')
  const lease = await granted(one, requestFor('lost-reply'))
  expect(proxy.lostReplies).toBe(before + 1)
  expect(await collect(one.inspect('lost-reply'))).toMatchObject([{ owner: lease.owner, token: lease.token }])
  proxy.cutOnNextReply('unlock')
  const longer = { ...lease, ttlMs: 40_000 }
  expect(await one.extend([longer])).toEqual([{ kind: 'held' }])
  expect(proxy.lostReplies).toBe(before + 2)
  expect(await one.release(longer)).toMatchObject({ ours: true })
  await until(async () => (await contents(server)).sessions.length === 0, { what: 'no sessions' })
})

test('an attempt that is not answered in time rejects, and is undone without a lock-delay', async () => {
  let tries = 0
  const one = open(proxyUrl(), {
    requestTimeout: 300,
    async fetch(url, init) {
      if (init.body?.includes('check-not-exists') === true) proxy.dropReplies(true)
      if (init.body?.includes('check-session') === true && tries++ === 0) proxy.dropRequests(true)
      return globalThis.fetch(url, init)
    },
  })
  onTestFinished(heal)
  await expect(one.acquire(requestFor('undone'))).rejects.toMatchObject({
    code: 'ENGINE',
    transient: true,
    resources: ['undone'],
    message: expect.stringContaining('no answer within 300 ms'),
  })
  // It did land.
  expect((await contents(server)).keys).toEqual(['ringfence/undone'])
  await until(() => tries > 0, { what: 'a first try to undo it' })
  heal()
  await until(async () => (await contents(server)).sessions.length === 0, { what: 'the undoing', withinMs: 15_000 })
  const two = open(server.url)
  await two.release(await granted(two, requestFor('undone')))
})

test.each([
  ['answer', (): void => proxy.dropReplies(true)],
  ['request', (): void => proxy.dropRequests(true)],
])('an adoption whose %s is lost leaves the lease to its holder', async (_what, fault) => {
  let losing = false
  const adopter = open(proxyUrl(), {
    requestTimeout: 1000,
    async fetch(url, init) {
      const isMove = init.body?.includes('"delete"') === true && init.body.includes('"lock"')
      if (losing && isMove) fault()
      return globalThis.fetch(url, init)
    },
  })
  onTestFinished(heal)
  const lose = (): void => void (losing = true)
  const healed = (): void => {
    losing = false
    heal()
  }
  await staysWithItsHolder({ holder: open(server.url), adopter, lose, heal: healed })
})

test('a shared lease is refused before any server is asked, with the reason and what to do', async () => {
  let asked = 0
  const fetch: Fetch = async () => {
    asked++
    throw new Error('expected no request')
  }
  const locks = createLocks(open(server.url, { fetch }))
  await expect(locks.acquire('a', { shared: true })).rejects.toThrow(
    new RangeError(
      'shared: expected false, because the consul engine has no shared leases; take an exclusive lease, or an engine that has ' +
        'them (docs/kinds/shared.md)',
    ),
  )
  expect(asked).toBe(0)
})

test('readers who take one of several names each are side by side, and a writer who takes all is alone', async () => {
  const names = ['report:1', 'report:2']
  const [one, two] = [createLocks(open(server.url)), createLocks(open(server.url))]
  const readers = [await one.tryAcquire(names[0]!), await two.tryAcquire(names[1]!)]
  expect(await one.tryAcquire(names)).toBeNull()
  for (const reader of readers) expect(await reader?.release()).toBe(true)
  const writer = await one.tryAcquire(names)
  for (const name of names) expect(await two.tryAcquire(name)).toBeNull()
  expect(await writer?.release()).toBe(true)
})

test('a server that does not answer is left for the next one, which is then asked first', async () => {
  const asked: string[] = []
  const one = open([proxyUrl(), server.url], {
    requestTimeout: 300,
    async fetch(url, init) {
      asked.push(new URL(url).port)
      return globalThis.fetch(url, init)
    },
  })
  proxy.dropRequests(true)
  onTestFinished(heal)
  const lease = await granted(one, requestFor('failover'))
  expect(await one.release(lease)).toMatchObject({ ours: true })
  expect(asked.filter((port) => port === String(proxy.port))).toHaveLength(1)
})

test('a server that is not Consul is recognised by its answer', async () => {
  const options = { fetch: async () => new Response('<html>hello</html>') }
  await expect(open(server.url, options).acquire(requestFor('a'))).rejects.toThrow(
    'consul: expected an answer from Consul, got 200 <html>hello</html>',
  )
})

test('closing ends the connections, also those of watches', async () => {
  await using proxy = await startProxy(server.port)
  const one = consul(`http://127.0.0.1:${proxy.port}`)
  expect(await one.watch!(['a', 'b'], () => undefined).armed).toBe(true)
  expect(proxy.connections).toBeGreaterThan(1)
  await one.close()
  await until(() => proxy.connections === 0, { what: 'no connections', withinMs: 3500 })
})

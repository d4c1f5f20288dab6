import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage, type RequestListener } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dashboard, type Dashboard } from '../../src/dashboard/index.ts'
import type { History, LeaseChanges, ProblemDetails } from '../../src/dashboard/protocol.ts'
import { memory } from '../../src/engines/memory.ts'
import { createLocks, type Engine } from '../../src/index.ts'
import { ManualClock, settled } from '../../harness/manual-clock.ts'
import { until } from '../../harness/until.ts'
import { ask, post, Viewer } from './viewer.ts'

const ANYONE = { auth: () => 'write' as const, every: 100 }

async function fill(engine: Engine, count: number, ttlMs = 3_600_000): Promise<void> {
  for (let index = 0; index < count; index++)
    await engine.acquire({ resources: [`r${index}`], owner: `${index}`, ttlMs })
}

async function listening(listener: RequestListener): Promise<AsyncDisposable & { url: string; port: number }> {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const stop = async (): Promise<void> => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  }
  return { port, url: `http://127.0.0.1:${port}`, [Symbol.asyncDispose]: stop }
}

describe('names that were chosen to do harm', () => {
  const names = [
    '<script>alert(1)</script>',
    '"><img src=x onerror=alert(1)>',
    "'; DROP TABLE leases; --",
    '</script><!--',
    '\u2028\u2029',
    '\u202Eevil',
    '😀 ünïcödé',
    '__proto__',
    'constructor',
    '%2e%2e%2f',
    '{"a":1}',
    'data: x',
    'n'.repeat(1024),
  ]
  const engine = memory()
  let page: Dashboard
  beforeAll(() => {
    page = dashboard(engine, ANYONE)
  })
  afterAll(() => page.close())

  test.each(names)('%j is shown, has a history and is released like any other', async (resource) => {
    const owner = `${'0'.repeat(32)}@${resource}`
    const grant = await engine.acquire({ resources: [resource], owner, ttlMs: 60_000 })
    expect(grant.kind).toBe('granted')
    await using viewer = await Viewer.open(page)
    const { token } = await viewer.sees(resource, (row) => row.owner === owner && row.label === resource)
    const history = await ask(page, `/history?resource=${encodeURIComponent(resource)}`)
    expect(history.headers.get('content-type')).toBe('application/json')
    expect(((await history.json()) as History).resource).toBe(resource)
    expect(await (await post(page, '/release', { resource, token })).json()).toEqual({ ours: true })
    await viewer.misses(resource)
  })

  test('a line break in what other software has written does not break out of an event', async () => {
    const resource = 'x\n\nevent: hello\ndata: {}'
    await engine.acquire({ resources: [resource], owner: 'a\r\nb', ttlMs: 60_000 })
    await using viewer = await Viewer.open(page)
    await viewer.sees(resource, ({ owner }) => owner === 'a\r\nb')
    expect(viewer.heard.filter(({ name }) => name === 'hello')).toHaveLength(1)
  })
})

describe('the files of the page', () => {
  let page: Dashboard
  beforeAll(() => {
    page = dashboard(memory(), ANYONE)
  })
  afterAll(() => page.close())

  test.each([
    ['identity', undefined, (bytes: Buffer) => bytes],
    ['br', 'gzip, deflate, br', brotliDecompressSync],
    ['gzip', 'gzip;q=0.5, br;q=0', gunzipSync],
    ['identity', 'gzip;q=0', (bytes: Buffer) => bytes],
  ])('come as %s for Accept-Encoding %s, and not twice', async (encoding, accepted, decoded) => {
    const headers = accepted === undefined ? {} : { 'accept-encoding': accepted }
    const response = await ask(page, '/app.js', { headers })
    expect(response.headers.get('content-encoding') ?? 'identity').toBe(encoding)
    expect(response.headers.get('content-type')).toBe('text/javascript; charset=utf-8')
    const plain = Buffer.from(await (await ask(page, '/app.js')).arrayBuffer())
    expect(decoded(Buffer.from(await response.arrayBuffer()))).toEqual(plain)
    const etag = response.headers.get('etag')!
    const again = await ask(page, '/app.js', { headers: { ...headers, 'if-none-match': `"other", W/${etag}` } })
    expect([again.status, again.headers.get('etag'), await again.text()]).toEqual([304, etag, ''])
  })

  test('HEAD tells the same without a body', async () => {
    const [head, get] = [await ask(page, '/', { method: 'HEAD' }), await ask(page, '/')]
    expect(head.headers.get('content-length')).toBe(get.headers.get('content-length'))
    expect(await head.text()).toBe('')
    expect(await get.text()).toMatch(/^<!doctype html>/i)
  })
})

test('it can be mounted under any path, and nowhere else', async () => {
  await using page = dashboard(memory(), { ...ANYONE, path: '/ops/locks/' })
  const bare = await ask(page, '/ops/locks?x')
  expect([bare.status, bare.headers.get('location')]).toEqual([308, '/ops/locks/'])
  expect((await ask(page, '/ops/locks/')).status).toBe(200)
  expect((await ask(page, '/ops/locks/app.js')).status).toBe(200)
  for (const path of ['/', '/app.js', '/ops/lock/', '/ops/locks/x/', '/ops/locks//', '//ops/locks/', '/OPS/locks/'])
    expect((await ask(page, path)).status).toBe(404)
})

describe('limits', () => {
  const engine = memory()

  test('more pages than allowed are told to come back later, and may when one has gone', async () => {
    await using page = dashboard(engine, { ...ANYONE, streams: 2 })
    await using _first = await Viewer.open(page)
    const second = await Viewer.open(page)
    const third = await ask(page, '/events')
    expect([third.status, third.headers.get('retry-after')]).toEqual([503, '10'])
    await second[Symbol.asyncDispose]()
    await using fourth = await Viewer.open(page)
    expect(fourth.response.status).toBe(200)
    expect(page.counts.streams).toBe(2)
  })

  test('addresses and bodies that are too long, too slow or broken are refused', async () => {
    const clock = new ManualClock()
    await using page = dashboard(engine, { ...ANYONE, clock })
    const headers = { 'content-type': 'application/json', origin: 'http://localhost:7464' }
    const status = async (
      body: string | ReadableStream<Uint8Array>,
      more: Record<string, string> = {},
    ): Promise<number> => {
      const init = { method: 'POST', headers: { ...headers, ...more }, body, duplex: 'half' as const }
      return (await ask(page, '/release', init)).status
    }
    expect((await ask(page, `/history?resource=${'x'.repeat(5000)}`)).status).toBe(414)
    expect((await ask(page, `/history?resource=${encodeURIComponent('é'.repeat(512))}`)).status).toBe(200)
    expect((await ask(page, `/history?resource=${'x'.repeat(1025)}`)).status).toBe(400)
    expect((await ask(page, '/history')).status).toBe(400)
    expect(await status('x'.repeat(20_000))).toBe(413)
    expect(await status('{}', { 'content-length': '99999' })).toBe(413)
    const endless = new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(1024)) })
    expect(await status(endless)).toBe(413)
    const broken = new ReadableStream({ pull: (controller) => controller.error(new Error('reset')) })
    expect(await status(broken)).toBe(400)
    const silent = status(new ReadableStream())
    await settled()
    await clock.advance(10_001)
    expect(await silent).toBe(408)
  })

  test.each([
    '',
    'null',
    '[]',
    '{"resource":"x"}',
    '{"resource":"x","token":1}',
    '{"resource":"x","token":"-1"}',
    '{"resource":"","token":"1"}',
    '{"resource":"a\\u0000b","token":"1"}',
    '{"resource":["x"],"token":"1"}',
    '{"__proto__":{"resource":"x","token":"1"}}',
    '{"resource":"x","token":"1","ttlMs":1}',
    '{"resource":"x","token":"1","ttlMs":1e300}',
    '{"resource":"x","token":"1","ttlMs":"5000"}',
    '{"resource":"x","token":"1","ttlMs":60000.5}',
  ])('the extension %s is refused with a reason', async (body) => {
    await using page = dashboard(engine, ANYONE)
    const headers = { 'content-type': 'application/json', origin: 'http://localhost:7464' }
    const response = await ask(page, '/extend', { method: 'POST', headers, body })
    expect([response.status, response.headers.get('content-type')]).toEqual([400, 'application/problem+json'])
    expect(((await response.json()) as ProblemDetails).detail).toMatch(/expected/)
  })
})

describe('a snapshot', () => {
  test('of many leases comes in parts, the first of which resets and the last of which ends it', async () => {
    const engine = memory()
    await fill(engine, 1234)
    await using page = dashboard(engine, ANYONE)
    await using viewer = await Viewer.open(page)
    await until(() => viewer.hasSnapshot, { what: 'the snapshot' })
    const parts = viewer.heard.filter(({ name }) => name === 'leases').map(({ data }) => data as LeaseChanges)
    expect(parts.slice(0, 3).map(({ reset, more, set }) => [reset, more, set.length])).toEqual([
      [true, true, 500],
      [false, true, 500],
      [false, false, 234],
    ])
    expect(viewer.rows.size).toBe(1234)
    const ids = viewer.heard.map(({ id }) => Number(id))
    expect(ids.every((id) => id > 0)).toBe(true)
  })

  test('after a reconnect makes the page right, whatever it has missed', async () => {
    const engine = memory()
    const locks = createLocks(engine)
    await using page = dashboard(engine, ANYONE)
    const kept = await locks.acquire('kept')
    const ended = await locks.acquire('ended')
    const viewer = await Viewer.open(page)
    await viewer.sees('ended')
    await viewer[Symbol.asyncDispose]()
    await ended.release()
    await locks.acquire('new')
    await using again = await Viewer.open(page)
    await again.sees('new')
    await again.misses('ended')
    expect(again.rows.get('kept')).toMatchObject({ token: String(kept.token) })
    const [first] = again.heard.filter(({ name }) => name === 'leases')
    expect(first!.data).toMatchObject({ reset: true })
    await locks.close()
  })
})

describe('a page that does not read', () => {
  const beatMs = 15_000

  test('is cut off after a while, and those that read stay', async () => {
    const clock = new ManualClock()
    await using page = dashboard(memory({ clock }), { ...ANYONE, clock })
    const stuck = await ask(page, '/events')
    await using reading = await Viewer.open(page)
    await clock.advance(beatMs)
    expect(page.counts.streams).toBe(2)
    await clock.advance(2 * beatMs)
    expect(page.counts.streams).toBe(1)
    expect(reading.beats).toBeGreaterThanOrEqual(2)
    expect(reading.isOver).toBe(false)
    await stuck.body!.cancel()
  })

  test('is not stored for without a bound', async () => {
    const engine = memory()
    await using page = dashboard(engine, ANYONE)
    const stuck = await ask(page, '/events')
    let round = 0
    await until(
      async () => {
        // Long names, all of them new in each round: some 3 MB of news.
        const name = (index: number): string => `${round}-${index}-${'x'.repeat(900)}`
        round++
        for (let index = 0; index < 1500; index++)
          await engine.acquire({ resources: [name(index)], owner: name(index), ttlMs: 150 })
        return page.counts.streams === 0
      },
      { what: 'it is cut off', withinMs: 30_000, everyMs: 100 },
    )
    expect(round).toBeGreaterThan(1)
    await stuck.body!.cancel()
  })
})

test('a page whose request is aborted is gone at once', async () => {
  await using page = dashboard(memory(), ANYONE)
  const leaving = new AbortController()
  const viewer = new Viewer(await ask(page, '/events', { signal: leaving.signal }))
  await viewer.has('hello')
  // Nobody but the dashboard has the request by now.
  globalThis.gc?.()
  leaving.abort()
  expect(page.counts.streams).toBe(0)
  await until(() => viewer.isOver, { what: 'the stream is over' })
})

test('a page is asked again who it is after an hour', async () => {
  const clock = new ManualClock()
  await using page = dashboard(memory({ clock }), { ...ANYONE, clock, whenIdle: 'never', every: 60_000 })
  await using viewer = await Viewer.open(page)
  await clock.advance(3_600_000)
  expect(viewer.isOver).toBe(false)
  await clock.advance(16_000)
  expect(viewer.isOver).toBe(true)
})

test('closing ends all pages and all timers, and leaves the engine open', async () => {
  const clock = new ManualClock()
  const engine = memory({ clock })
  const page = dashboard(engine, { ...ANYONE, clock })
  const viewers = await Promise.all([Viewer.open(page), Viewer.open(page)])
  await clock.advance(5000)
  expect(clock.foregroundTimers).toBe(0)
  await page.close()
  await until(() => viewers.every(({ isOver }) => isOver), { what: 'all pages are over' })
  await clock.advance(1001)
  expect(clock.timers).toBe(0)
  expect((await ask(page, '/events')).status).toBe(503)
  expect(await engine.acquire({ resources: ['x'], owner: 'x', ttlMs: 1000 })).toMatchObject({
    kind: 'granted',
  })
})

describe('on a server of Node', () => {
  test('pages, events and posts go through; a page that goes away is noticed', async () => {
    const engine = memory()
    const locks = createLocks(engine)
    await using page = dashboard(engine, { writeToken: 'w'.repeat(20), every: 100 })
    await using server = await listening(page.listener)
    const headers = { authorization: `Bearer ${'w'.repeat(20)}` }
    expect((await fetch(`${server.url}/`)).status).toBe(401)
    expect((await fetch(`${server.url}/`, { headers })).headers.get('content-type')).toMatch(/^text\/html/)
    const lease = await locks.acquire('x')
    const viewer = new Viewer(await fetch(`${server.url}/events`, { headers }))
    await viewer.sees('x')
    const released = await fetch(`${server.url}/release`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify({ resource: 'x', token: String(lease.token) }),
    })
    expect(await released.json()).toEqual({ ours: true })
    await viewer.misses('x')
    await viewer[Symbol.asyncDispose]()
    await until(() => page.counts.streams === 0, { what: 'the stream is closed' })
    await locks.close()
  })

  test('mounted as Express does it, where the rest of the path is what is left of `url`', async () => {
    await using page = dashboard(memory(), { ...ANYONE, path: '/locks' })
    await using server = await listening((request: IncomingMessage & { originalUrl?: string }, response) => {
      request.originalUrl = request.url!
      request.url = request.url!.replace(/^\/locks/, '') || '/'
      page.listener(request, response)
    })
    const bare = await fetch(`${server.url}/locks`)
    expect([bare.url, bare.status]).toEqual([`${server.url}/locks/`, 200])
  })

  test('a hook that fails is told to Express, or else is a 500 and a warning', async () => {
    await using page = dashboard(memory(), { auth: () => Promise.reject(new Error('no database')) })
    const told: unknown[] = []
    await using express = await listening((request, response) =>
      page.listener(request, response, (error) => {
        told.push(error)
        response.writeHead(502).end()
      }),
    )
    expect((await fetch(express.url)).status).toBe(502)
    expect(told).toEqual([new Error('no database')])
    await using plain = await listening(page.listener)
    const warned = once(process, 'warning')
    const answer = await fetch(plain.url)
    expect([answer.status, await answer.text()]).toEqual([500, ''])
    expect(await warned).toEqual([new Error('no database')])
  })

  test.each([
    ['TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n', 400],
    ['GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n', 400],
    ['OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n', 400],
    ['GET //evil.example HTTP/1.1\r\nHost: localhost\r\n\r\n', 404],
    ['GET /\\evil.example HTTP/1.1\r\nHost: localhost\r\n\r\n', 404],
    ['GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n', 421],
    ['GET / HTTP/1.1\r\nHost: a b\r\n\r\n', 421],
    ['GET / HTTP/1.0\r\n\r\n', 200],
    [`GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431],
    ['nonsense\r\n\r\n', 400],
  ])('%j is answered with %d', async (text, expected) => {
    await using page = dashboard(memory())
    await using server = await listening(page.listener)
    const socket = connect(server.port, '127.0.0.1').on('error', () => undefined)
    socket.write(text)
    const [data] = (await once(socket, 'data')) as [Buffer]
    expect(Number(/^HTTP\/1\.\d (\d+)/.exec(String(data))![1])).toBe(expected)
    socket.destroy()
  })

  test('a body that is never sent does no harm', async () => {
    await using page = dashboard(memory(), ANYONE)
    await using server = await listening(page.listener)
    const headers = {
      'content-type': 'application/json',
      origin: `http://127.0.0.1:${server.port}`,
      'content-length': 100,
    }
    const request = httpRequest(`${server.url}/release`, { method: 'POST', headers }).on('error', () => undefined)
    request.write('{')
    await once(request, 'socket')
    request.destroy()
    expect((await fetch(server.url)).status).toBe(200)
  })
})

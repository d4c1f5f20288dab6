import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import * as fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { dashboard, type Dashboard } from '../../src/dashboard/index.ts'
import { memory } from '../../src/engines/memory.ts'
import { createLocks } from '../../src/index.ts'
import { until } from '../../harness/until.ts'
import { always, FUZZ_TIMEOUT_MS } from '../unit/fuzz/for-so-long.ts'

/** What was found must not vanish: a second run draws other input. */
const FUZZ = { timeout: FUZZ_TIMEOUT_MS, retry: 0 }

const WRITE = 'write-token-0123456789'
const READ = 'read-token-0123456789'
const engine = memory()
const locks = createLocks(engine, { ttl: '1h' })
let page: Dashboard
const rejections: unknown[] = []
const note = (reason: unknown): void => void rejections.push(reason)

beforeAll(async () => {
  process.on('unhandledRejection', note)
  await locks.acquire('held')
  page = dashboard(engine, { readToken: READ, writeToken: WRITE, every: 100 })
})
afterAll(async () => {
  await page.close()
  await locks.close()
  process.off('unhandledRejection', note)
})

/** Mostly what means something to the handler, so that it gets far; and now and then anything at all. */
const odd = fc.string({ unit: 'binary', maxLength: 60 })
const method = fc.oneof(fc.constantFrom('GET', 'POST', 'POST', 'HEAD', 'PUT', 'DELETE', 'OPTIONS'), odd)
const path = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      '/',
      '/events',
      '/history',
      '/release',
      '/extend',
      '/login',
      '/logout',
      '/app.js',
      '/app.css',
      '//',
      '/%',
    ),
  },
  fc.webPath(),
  odd.map((text) => `/${text}`),
)
const query = fc.oneof(
  fc.constant(''),
  odd.map((text) => `?resource=${encodeURIComponent(text)}`),
  fc.webQueryParameters().map((text) => `?${text}`),
  odd.map((text) => `?${text}`),
)
const field = (...values: string[]): fc.Arbitrary<string | undefined> =>
  fc.option(fc.oneof(fc.constantFrom(...values), fc.string({ maxLength: 80 })), { nil: undefined, freq: 2 })
const anyHeaders = fc.record({
  authorization: fc.option(
    fc.oneof({ weight: 4, arbitrary: fc.constantFrom(`Bearer ${WRITE}`, `Bearer ${READ}`) }, odd),
    {
      nil: undefined,
    },
  ),
  'content-type': field('application/json', 'application/x-www-form-urlencoded', 'text/plain', 'application/json;'),
  'content-length': field('0', '5', '99999999', '-1', 'NaN', '1e9'),
  origin: field('http://localhost', 'null', 'http://[', 'https://localhost:99999', 'file:///'),
  host: field('localhost', 'localhost:80', '[::1', '@', '127.0.0.1'),
  cookie: field('ringfence-00000000=write.1.x', '=;;=', `a=${'b'.repeat(60)}`),
  'sec-fetch-site': field('same-origin', 'cross-site', 'none'),
  'accept-encoding': field('gzip', 'br;q=x', '*', ',,;;'),
  'if-none-match': field('*', '""', 'W/"x"'),
  [`x-anything`]: field('a'),
})
/** Half of them a writer's own, so that what he sends gets as far as it can. */
const headers = fc.oneof(
  anyHeaders,
  fc.constant({ authorization: `Bearer ${WRITE}`, 'content-type': 'application/json' }),
)
const body = fc.oneof(
  fc.json(),
  fc
    .record(
      {
        resource: fc.oneof(fc.constant('held'), odd, fc.anything()),
        token: fc.oneof(fc.constantFrom('1', '0', '99999999999999999999999999'), odd, fc.anything()),
        ttlMs: fc.oneof(fc.integer(), fc.double(), fc.anything()),
      },
      { requiredKeys: [] },
    )
    .map((value) => JSON.stringify(value, (_key, part: unknown) => (typeof part === 'bigint' ? String(part) : part))),
  odd.map((text) => `token=${text}`),
  fc.string({ maxLength: 30_000 }),
  fc.uint8Array({ maxLength: 200 }),
)

/** Undefined for what no client could have sent. */
function requestOf(parts: {
  method: string
  target: string
  headers: Record<string, string | undefined>
  body: string | Uint8Array<ArrayBuffer>
}): Request | undefined {
  const given = Object.entries(parts.headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as [string, string]],
  )
  const hasBody = !/^(get|head)$/i.test(parts.method)
  try {
    return new Request(`http://localhost${parts.target}`, {
      method: parts.method,
      headers: given,
      ...(hasBody ? { body: parts.body } : {}),
    })
  } catch {
    return undefined
  }
}

test('whatever is asked, it is answered, and never with a failure of the server', FUZZ, async () => {
  const statuses = new Map<number, number>()
  const parts = fc
    .record({ method, target: fc.tuple(path, query).map((both) => both.join('')), headers, body })
    .filter((all) => requestOf(all) !== undefined)
  await always(parts, { runs: 3000, part: 1 / 2 }, async (all) => {
    const request = requestOf(all)!
    const response = await page.fetch(request, { remoteAddress: '127.0.0.1' })
    statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1)
    expect(response.status).toBeLessThan(500)
    expect(response.headers.get('x-content-type-options')).toBe('nosniff')
    await response.body?.cancel()
  })
  // It was not all refused at the door: every usual outcome was among them.
  for (const status of [200, 400, 401, 403, 404, 405]) expect(statuses.get(status)).toBeGreaterThan(10)
  expect(page.counts.streams).toBe(0)
  expect((await engine.acquire({ resources: ['y'], owner: 'y', ttlMs: 1 })).kind).toBe('granted')
})

test('whatever bytes are sent to the server, it lives, and keeps nothing of it', FUZZ, async () => {
  const server = createServer(page.listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const line = fc.oneof(
    fc.tuple(method, path, query).map(([method, path, query]) => `${method} ${path}${query} HTTP/1.1`),
    odd,
  )
  const bytes = fc
    .tuple(line, headers, body)
    .map(([first, headers, body]) =>
      Buffer.concat([
        Buffer.from(first, 'latin1'),
        ...Object.entries(headers).map(([name, value]) =>
          Buffer.from(value === undefined ? '' : `\r\n${name}: ${value}`),
        ),
        Buffer.from('\r\n\r\n'),
        Buffer.from(body),
      ]),
    )
  const send = async (data: Uint8Array): Promise<string> => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    const heard: Buffer[] = []
    socket.on('data', (piece: Buffer) => heard.push(piece)).end(data)
    // A stream, or a body that is not all there, would keep it open.
    socket.setTimeout(50, () => socket.destroy())
    await once(socket, 'close')
    return Buffer.concat(heard).toString('latin1')
  }
  try {
    await always(bytes, { runs: 250, part: 1 / 2 }, async (data) => {
      expect(await send(data)).toMatch(/^(HTTP\/1\.1 [1234]\d\d |$)/)
    })
    await until(() => page.counts.streams === 0, { what: 'no stream is left' })
    expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(401)
  } finally {
    server.closeAllConnections()
    server.close()
  }
})

/** In MB. */
function heap(): number {
  globalThis.gc!()
  globalThis.gc!()
  return process.memoryUsage().heapUsed / 1024 / 1024
}

test('thousands of requests and streams leave nothing behind', async () => {
  const round = async (): Promise<void> => {
    for (let index = 0; index < 400; index++) {
      const headers = { authorization: `Bearer ${WRITE}`, 'content-type': 'application/json' }
      const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
        page.fetch(new Request(`http://localhost${path}`, { headers, ...init }), { remoteAddress: '127.0.0.1' })
      const reader = (await ask('/events')).body!.getReader()
      await reader.read()
      await reader.cancel()
      await ask('/release', { method: 'POST', body: JSON.stringify({ resource: `n${index}`, token: '1' }) })
      await ask(`/history?resource=n${index}`)
      await ask(`/nothing${index}`)
    }
  }
  await round()
  const before = heap()
  await round()
  await round()
  expect(page.counts.streams).toBe(0)
  // 800 streams of 10 kB each would be 8 MB.
  expect(heap() - before).toBeLessThan(4)
  expect(rejections).toEqual([])
}, 120_000)

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dashboard, type AuditEntry, type Dashboard, type DashboardOptions } from '../../src/dashboard/index.ts'
import { memory } from '../../src/engines/memory.ts'
import { createLocks, type Lease } from '../../src/index.ts'
import { ManualClock } from '../../harness/manual-clock.ts'
import { ask, post, Viewer } from './viewer.ts'

const READ = 'read-token-0123456789'
const WRITE = 'write-token-0123456789'
const TOKENS = { readToken: READ, writeToken: WRITE }
const HERE = 'http://localhost:7464'
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` })

const engine = memory()
const locks = createLocks(engine, { ttl: '1h', label: 'someone' })
let lease: Lease
beforeAll(async () => {
  lease = await locks.acquire('held')
})
afterAll(() => locks.close())

async function cookieFor(page: Dashboard, token: string): Promise<string> {
  const response = await login(page, token)
  return response.headers.getSetCookie()[0]!.split(';')[0]!
}

function login(page: Dashboard, token: string, headers: Record<string, string> = { origin: HERE }): Promise<Response> {
  return ask(page, '/login', { method: 'POST', headers, body: new URLSearchParams({ token }) })
}

async function statusFor(page: Dashboard, cookie: string): Promise<number> {
  return (await ask(page, '/', { headers: { cookie } })).status
}

/** All combinations. */
function combined<T extends Record<string, readonly unknown[]>>(table: T): { [K in keyof T]: T[K][number] }[] {
  return Object.entries(table).reduce<object[]>(
    (all, [name, values]) => all.flatMap((one) => values.map((value) => ({ ...one, [name]: value }))),
    [{}],
  ) as { [K in keyof T]: T[K][number] }[]
}

test('of all ways to ask for a release or an extension, only those of a writer on this very page get through', async () => {
  const audit: AuditEntry[] = []
  // Engines are asked for a lease that is none: whoever gets through is told so, and nothing changes meanwhile.
  await using page = dashboard(engine, { ...TOKENS, onAudit: (entry) => audit.push(entry) })
  const [reader, writer] = [await cookieFor(page, READ), await cookieFor(page, WRITE)]
  const who: Record<string, Record<string, string>> = {
    nobody: {},
    'wrong token': bearer('wrong-token-012345678'),
    'read token': bearer(READ),
    'write token': bearer(WRITE),
    'write token by basic auth': { authorization: `Basic ${btoa(`:${WRITE}`)}` },
    'read cookie': { cookie: reader },
    'write cookie': { cookie: `a=b; ${writer}` },
    'read cookie as write': { cookie: reader.replace('=read.', '=write.') },
    'wrong token with write cookie': { ...bearer('wrong-token-012345678'), cookie: writer },
  }
  const all = combined({
    route: ['release', 'extend'],
    method: ['POST', 'GET', 'PUT', 'DELETE', 'OPTIONS'],
    who: Object.keys(who),
    site: [undefined, 'same-origin', 'same-site', 'cross-site', 'none'],
    origin: [undefined, HERE, 'http://localhost:1', 'https://evil.example', 'null'],
    type: ['application/json', 'application/json; charset=utf-8', 'text/plain', 'application/x-www-form-urlencoded'],
  })
  const passed: typeof all = []
  const refused = new Set<number>()
  for (const one of all) {
    const response = await ask(page, `/${one.route}`, {
      method: one.method,
      headers: {
        ...who[one.who],
        'content-type': one.type,
        ...(one.site === undefined ? {} : { 'sec-fetch-site': one.site }),
        ...(one.origin === undefined ? {} : { origin: one.origin }),
      },
      ...(one.method === 'GET' ? {} : { body: JSON.stringify({ resource: 'nothing', token: '1', ttlMs: 5000 }) }),
    })
    if (response.ok) passed.push(one)
    else refused.add(response.status)
  }
  expect(refused).toEqual(new Set([401, 403, 405, 415]))
  for (const { method, who, site, origin, type } of passed) {
    expect({ method, type: type.slice(0, 16) }).toEqual({ method: 'POST', type: 'application/json' })
    expect(['write token', 'write cookie']).toContain(who)
    expect([undefined, 'same-origin']).toContain(site)
    expect([undefined, HERE]).toContain(origin)
  }
  // 2 routes × 2 content types × (4 of site and origin with a bearer token, 3 with a cookie, which needs one of them).
  expect(passed).toHaveLength(2 * 2 * (4 + 3))
  expect(audit.filter(({ outcome }) => outcome === 'not held')).toHaveLength(passed.length)
  expect(audit.filter(({ outcome }) => outcome === 'refused')).toHaveLength(60)
  expect(JSON.stringify(audit)).not.toMatch(new RegExp(`${READ}|${WRITE}`))
})

describe.each<[string, DashboardOptions, Record<string, Record<string, string>>]>([
  ['tokens', TOKENS, { none: {}, wrong: bearer('wrong-token-012345678'), read: bearer(READ), write: bearer(WRITE) }],
  [
    'a hook',
    { auth: (request) => (request.headers.get('x-role') ?? 'none') as 'none' },
    { none: {}, wrong: { 'x-role': 'none' }, read: { 'x-role': 'read' }, write: { 'x-role': 'write' } },
  ],
])('with %s', (name, options, headers) => {
  let page: Dashboard
  beforeAll(() => {
    page = dashboard(engine, options)
  })
  afterAll(() => page.close())
  const refused = name === 'tokens' ? 401 : 403
  const table: [route: string, init: RequestInit, status: Record<string, number>][] = [
    ['/', {}, { none: refused, wrong: refused, read: 200, write: 200 }],
    ['/events', {}, { none: refused, wrong: refused, read: 200, write: 200 }],
    ['/history?resource=held', {}, { none: refused, wrong: refused, read: 200, write: 200 }],
    ['/release', { method: 'POST' }, { none: refused, wrong: refused, read: 403, write: 403 }],
    ['/extend', { method: 'POST' }, { none: refused, wrong: refused, read: 403, write: 403 }],
    ['/app.js', {}, { none: 200, wrong: 200, read: 200, write: 200 }],
    ['/app.css', { method: 'HEAD' }, { none: 200, wrong: 200, read: 200, write: 200 }],
    ['/index.html', {}, { none: 404, wrong: 404, read: 404, write: 404 }],
    ['/login.html', {}, { none: 404, wrong: 404, read: 404, write: 404 }],
    ['/../package.json', {}, { none: 404, wrong: 404, read: 404, write: 404 }],
    ['/%2e%2e%2fpackage.json', {}, { none: 404, wrong: 404, read: 404, write: 404 }],
    ['/__proto__', {}, { none: 404, wrong: 404, read: 404, write: 404 }],
    ['/constructor', {}, { none: 404, wrong: 404, read: 404, write: 404 }],
    ['/', { method: 'POST' }, { none: 405, wrong: 405, read: 405, write: 405 }],
    ['/events', { method: 'POST' }, { none: 405, wrong: 405, read: 405, write: 405 }],
  ]
  const cases = table.flatMap(([route, init, status]) =>
    Object.entries(status).map(([who, expected]) => [init.method ?? 'GET', route, who, expected, init] as const),
  )

  test.each(cases)('%s %s by %s is %d', async (_method, route, who, expected, init) => {
    // A hook's visitors come with what a browser sends by itself, so no Origin means no.
    const isWrite = name === 'tokens' && who === 'write' && /release|extend/.test(route)
    const response = await ask(page, route, { ...init, headers: headers[who]! })
    await response.body?.cancel()
    expect(response.status).toBe(isWrite ? 415 : expected)
    expect(response.headers.get('content-security-policy')).toMatch(/^default-src 'none'; script-src 'self';/)
    expect(response.headers.get('x-content-type-options')).toBe('nosniff')
    expect(response.headers.get('referrer-policy')).toBe('same-origin')
    expect(response.headers.get('cross-origin-opener-policy')).toBe('same-origin')
    expect(response.headers.has('access-control-allow-origin')).toBe(false)
  })
})

test('a hook that does not answer with a role lets nobody in, and its errors are for the one who mounted it', async () => {
  for (const answer of [undefined, null, true, 'admin', { role: 'root', name: 'x' }, {}]) {
    await using page = dashboard(engine, { auth: () => answer as 'none' })
    await expect(ask(page, '/events')).rejects.toThrow(/^auth: expected 'none', 'read' or 'write'/)
  }
  await using page = dashboard(engine, { auth: () => Promise.reject(new Error('no database')) })
  await expect(ask(page, '/')).rejects.toThrow('no database')
})

describe('without tokens or a hook', () => {
  let page: Dashboard
  beforeAll(() => {
    page = dashboard(engine)
  })
  afterAll(() => page.close())

  test.each([
    ['127.0.0.1', 'localhost:7464', 200],
    ['127.0.0.1', 'LOCALHOST', 200],
    ['127.9.9.9', '127.0.0.1:80', 200],
    ['::1', '[::1]:7464', 200],
    ['::ffff:127.0.0.1', 'localhost', 200],
    ['127.0.0.1', 'evil.example', 421],
    ['127.0.0.1', 'evil.example:7464', 421],
    ['127.0.0.1', 'localhost.evil.example', 421],
    ['127.0.0.1', '127.0.0.1.evil.example', 421],
    ['127.0.0.1', 'evil.example@localhost', 421],
    ['127.0.0.1', '0.0.0.0:7464', 421],
    ['127.0.0.1', '', 421],
    ['10.0.0.7', 'localhost:7464', 403],
    ['::ffff:10.0.0.7', 'localhost:7464', 403],
    ['fe80::1', 'localhost:7464', 403],
    ['127.0.0.1.evil', 'localhost:7464', 403],
  ])('%s that asks for %s gets %d', async (remoteAddress, host, expected) => {
    for (const path of ['/', '/app.js', '/history?resource=held']) {
      expect((await ask(page, path, { remoteAddress, headers: { host } })).status).toBe(expected)
    }
  })

  test('a request from who knows where gets nothing', async () => {
    expect((await page.fetch(new Request(`${HERE}/`))).status).toBe(403)
    // As some servers call it.
    expect(
      (await page.fetch(new Request(`${HERE}/`), { remoteAddr: { hostname: '127.0.0.1' } } as object)).status,
    ).toBe(403)
  })

  test('nobody may write, whatever is sent', async () => {
    const response = await post(page, '/release', { resource: 'held', token: String(lease.token) }, bearer(WRITE))
    expect(response.status).toBe(403)
    expect((await ask(page, '/login', { method: 'POST', headers: { origin: HERE } })).status).toBe(404)
    expect(lease.held).toBe(true)
  })

  test.each(['cross-site', 'same-site'])('a %s page can keep no stream busy', async (site) => {
    expect((await ask(page, '/events', { headers: { 'sec-fetch-site': site } })).status).toBe(403)
    expect(page.counts.streams).toBe(0)
  })
})

describe('the login', () => {
  test('gives a cookie for this path alone, which no script can read and no other site makes a browser send', async () => {
    await using page = dashboard(engine, { ...TOKENS, path: '/ops/locks' })
    const form = { method: 'POST', body: new URLSearchParams({ token: READ }) }
    const plain = await ask(page, '/ops/locks/login', { ...form, headers: { origin: HERE } })
    expect([plain.status, plain.headers.get('location')]).toEqual([303, './'])
    const [cookie] = plain.headers.getSetCookie()
    expect(cookie).toMatch(
      /^ringfence-[0-9a-f]{8}=read\.\d+\.[\w-]{43}; Path=\/ops\/locks\/; Max-Age=43200; HttpOnly; SameSite=Strict$/,
    )
    expect(cookie).not.toContain(READ)
    const tls = { host: 'ops.example', origin: 'https://ops.example', 'sec-fetch-site': 'same-origin' }
    const secure = await ask(page, '/ops/locks/login', { ...form, headers: tls })
    expect(secure.headers.getSetCookie()[0]).toMatch(/; Secure$/)
  })

  test('is refused to wrong tokens, with a word in the audit and back to the form; also from another site', async () => {
    const audit: AuditEntry[] = []
    await using page = dashboard(engine, { ...TOKENS, onAudit: (entry) => audit.push(entry) })
    const wrong = await login(page, 'read-token-0123456788')
    expect([wrong.status, wrong.headers.get('location')]).toEqual([303, './#failed'])
    expect(wrong.headers.getSetCookie()).toEqual([])
    expect(audit).toMatchObject([{ action: 'login', outcome: 'refused', role: 'none' }])
    expect((await login(page, READ, { origin: 'https://evil.example' })).status).toBe(403)
    expect((await login(page, READ, {})).status).toBe(403)
    for (const token of ['', ' ', READ.slice(0, -1), `${READ} `, '\u0000', 'x'.repeat(10_000)])
      expect((await login(page, token)).headers.getSetCookie()).toEqual([])
  })

  test('ends: with the logout, after twelve hours, and with the token', async () => {
    const clock = new ManualClock()
    await using page = dashboard(engine, { ...TOKENS, clock })
    const cookie = await cookieFor(page, WRITE)
    expect(await statusFor(page, cookie)).toBe(200)
    await using restarted = dashboard(engine, { ...TOKENS, clock })
    expect(await statusFor(restarted, cookie)).toBe(200)
    await using renewed = dashboard(engine, { readToken: READ, writeToken: 'another-token-0123456' })
    expect(await statusFor(renewed, cookie)).toBe(401)
    const out = await ask(page, '/logout', { method: 'POST', headers: { origin: HERE, cookie } })
    expect(out.headers.getSetCookie()[0]).toMatch(/^ringfence-[0-9a-f]{8}=; Path=\/; Max-Age=0;/)
    const [, until] = cookie.split('.')
    expect(await statusFor(page, cookie.replace(until!, String(Number(until) + 1)))).toBe(401)
    clock.pass(12 * 3_600_000 + 1)
    expect(await statusFor(page, cookie)).toBe(401)
  })

  test('a page behind a proxy that hides its name is told its origin', async () => {
    await using page = dashboard(engine, { ...TOKENS, origins: ['https://ops.example'] })
    const body = { resource: 'nothing', token: '1' }
    const status = async (origin: string): Promise<number> =>
      (await post(page, '/release', body, { ...bearer(WRITE), origin })).status
    expect(await status('https://ops.example')).toBe(200)
    expect(await status('http://ops.example')).toBe(403)
    expect(await status(HERE)).toBe(403)
  })
})

test('the pages of a reader and of a writer are told what they may', async () => {
  await using page = dashboard(engine, TOKENS)
  await using reader = await Viewer.open(page, bearer(READ))
  await using writer = await Viewer.open(page, { cookie: await cookieFor(page, WRITE) })
  expect(await reader.has('hello')).toMatchObject({ may: 'read', loggedIn: false })
  expect(await writer.has('hello')).toMatchObject({ may: 'write', loggedIn: true, engine: { name: 'memory' } })
})

test.each<[object, RegExp]>([
  [{ readToken: 'short' }, /^readToken: expected 16 to 512 characters, got 5; `openssl rand -hex 32` makes one$/],
  [{ writeToken: 17 }, /^writeToken: expected a string/],
  [{ readToken: 'with space 0123456789' }, /^readToken: expected printable ASCII/],
  [{ readToken: READ, writeToken: READ }, /^readToken: expected another token/],
  [{ readToken: READ, auth: () => 'read' }, /^auth: expected either/],
  [{ auth: 'read' }, /^auth: expected a function/],
  [{ path: 'locks' }, /^path: expected a path/],
  [{ path: '/a/../b' }, /^path: expected a path/],
  [{ path: '/a b' }, /^path: expected a path/],
  [{ origins: ['https://x/y'] }, /^origins\[0\]: expected an origin/],
  [{ streams: 0 }, /^streams: expected a whole number/],
  [{ every: 1 }, /^every: expected/],
  [{ whenIdle: 'always' }, /^whenIdle: expected/],
  [{ tokens: [] }, /^options: expected path, readToken/],
])('the options %o are refused', (options, message) => {
  expect(() => dashboard(engine, options)).toThrow(message)
})

test.each([undefined, null, {}, 'redis://x'])('%o is no engine', (source) => {
  expect(() => dashboard(source as never)).toThrow(
    /^engine: expected (an engine, locks, or several|at least one engine)/,
  )
})

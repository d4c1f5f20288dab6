import { statSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import type { Past } from '../../../src/dashboard/protocol.ts'
import { redis } from '../../../src/engines/redis/index.ts'
import { createLocks } from '../../../src/index.ts'
import { Viewer } from '../../dashboard/viewer.ts'
import { Home, type Command } from '../../../harness/command.ts'
import { startRedis, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

const PASSWORD = 's3cret/with:odd@signs'
const READ = 'reader-0123456789abcdef'
const WRITE = 'writer-0123456789abcdef'
let server: RedisServer
let url: string
const home = new Home()
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` })
const withoutSecrets = (text: string): void => {
  for (const secret of [PASSWORD, encodeURIComponent(PASSWORD), READ, WRITE]) expect(text).not.toContain(secret)
}

beforeAll(async () => {
  server = await startRedis({ password: PASSWORD })
  url = `redis://:${encodeURIComponent(PASSWORD)}@${server.host}:${server.port}`
  writeFileSync(home.file('read'), `${READ}\n`)
  writeFileSync(home.file('write'), `${WRITE}\n`)
})
afterAll(async () => {
  await home[Symbol.asyncDispose]()
  await server.stop()
})

test.each(['SIGTERM', 'SIGINT'] as const)(
  'it serves on this machine, read-only, until %s, and then ends at once',
  async (signal) => {
    const env = { RINGFENCE_URL: url }
    const command = home.start(['dashboard', '--listen', '0'], { env })
    const at = await command.printed(/is at (http:\/\/127\.0\.0\.1:\d+\/)\n/)
    const page = await fetch(at)
    expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
    const viewer = new Viewer(await fetch(`${at}events`))
    expect(await viewer.has('hello')).toMatchObject({ may: 'read', engine: { name: 'redis' } })
    const holder = home.start(['run', '--label', 'ada', 'shown', '--', 'sh', '-c', 'echo ready; read -r _'], { env })
    await holder.printed(/ready/)
    const { token } = await viewer.sees('shown', ({ label }) => label === 'ada')
    const headers = { 'content-type': 'application/json', origin: new URL(at).origin }
    const refused = await fetch(`${at}release`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ resource: 'shown', token }),
    })
    expect(refused.status).toBe(403)
    expect(await statusFor(at, 'evil.example')).toBe(421)
    holder.type('\n')
    expect(await holder.ended).toMatchObject({ code: 0 })
    await viewer.misses('shown')
    command.signal(signal)
    const ended = await command.ended
    expect(ended).toMatchObject({ code: 0, signal: null })
    await until(() => viewer.isOver, { what: 'the stream has ended' })
    expect(JSON.parse(ended.stderr)).toMatchObject({ audit: { action: 'release', outcome: 'refused', who: 'anyone' } })
    withoutSecrets(ended.stdout + ended.stderr)
    await expect(fetch(at)).rejects.toThrow('fetch failed')
  },
)

/** What a browser asks for after another site let its own name point to us. */
function statusFor(at: string, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    request(at, { headers: { host } }, (response) => {
      response.resume()
      resolve(response.statusCode!)
    })
      .on('error', reject)
      .end()
  })
}

test('with tokens it listens anywhere; writers release, and each release is a line', async () => {
  const options = [
    '--listen',
    '0.0.0.0:0',
    '--token-file',
    home.file('read'),
    '--json',
    '--verbose',
    '--history',
    home.file('seen'),
  ]
  const env = { RINGFENCE_URL: url, RINGFENCE_DASHBOARD_WRITE_TOKEN: WRITE }
  const command = home.start(['dashboard', ...options], { env })
  const started = JSON.parse(await command.printed(/^.*\n/)) as { url: string; engine: string; writable: boolean }
  expect(started).toMatchObject({ engine: expect.stringMatching(/^redis:\/\/:\*\*\*@/) as string, writable: true })
  const at = started.url.replace('0.0.0.0', '127.0.0.1')
  expect((await fetch(at)).status).toBe(401)
  expect((await fetch(at, { headers: bearer(READ) })).status).toBe(200)
  const holder = home.start(['run', '--ttl', '2s', 'held', '--', 'sleep', '600'], { env })
  await using viewer = new Viewer(await fetch(`${at}events`, { headers: bearer(WRITE) }))
  const { token, owner } = await viewer.sees('held')
  const post = (role: string): Promise<Response> =>
    fetch(`${at}release`, {
      method: 'POST',
      headers: { ...bearer(role), 'content-type': 'application/json' },
      body: JSON.stringify({ resource: 'held', token }),
    })
  expect((await post(READ)).status).toBe(403)
  expect(await (await post(WRITE)).json()).toEqual({ ours: true })
  expect(await holder.ended).toMatchObject({ code: EXIT.lost })
  command.signal('SIGTERM')
  const { code, stdout, stderr } = await command.ended
  expect(code).toBe(0)
  expect(stderr).toContain(`\nringfence: history: ${home.file('seen')}, from --history\n`)
  expect(stderr).toContain(`\nringfence: token: ***, from --token-file ${home.file('read')}\n`)
  expect(stderr).toContain('\nringfence: write-token: ***, from RINGFENCE_DASHBOARD_WRITE_TOKEN\n')
  const [refused, done] = stderr
    .trim()
    .split('\n')
    .filter((line) => !line.startsWith('ringfence: '))
    .map((line) => JSON.parse(line) as unknown)
  expect(refused).toMatchObject({ audit: { action: 'release', outcome: 'refused', role: 'read' } })
  expect(done).toMatchObject({ audit: { outcome: 'done', who: 'write token', resource: 'held', owner, token } })
  withoutSecrets(stdout + stderr)
})

test('with a store it shows the runs of jobs, and starts without it when it is away', async () => {
  const env = { RINGFENCE_URL: url, RINGFENCE_STORE: url }
  await home.run(['run', '--once', '--label', 'ada', 'nightly', '--', 'sh', '-c', 'exit 3'], { env })
  const command = home.start(['dashboard', '--listen', '0', '--json'], { env })
  const started = JSON.parse(await command.printed(/^.*\n/)) as { url: string; store: string }
  expect(started.store).toMatch(/^redis:\/\/:\*\*\*@/)
  const found = await fetch(`${started.url}runs?resource=nightly`)
  expect(await found.json()).toMatchObject({ runs: [{ label: 'ada', outcome: 'failed', message: 'exit code 3' }] })
  command.signal('SIGTERM')
  expect(await command.ended).toMatchObject({ code: 0, stderr: '' })

  const away = home.start(['dashboard', '--listen', '0', '--store', 'redis://127.0.0.1:1'], { env })
  const at = await away.printed(/is at (\S+)/)
  const failed = await fetch(`${at}runs?resource=nightly`)
  expect([failed.status, await failed.text()]).toEqual([503, expect.stringContaining('the store of runs: ')])
  expect((await fetch(`${at}history?resource=nightly`)).status).toBe(200)
  away.signal('SIGTERM')
  expect(await away.ended).toMatchObject({ code: 0, stderr: '' })
})

test('several engines are in one page, each by its name', async () => {
  const local = home.file('locks.db')
  const engines = ['--engine', `orders=${url}`, '--engine', `file:${local}`, '--engine', `file:${local}-2`]
  const command = home.start(['dashboard', '--listen', '0', '--json', ...engines])
  const started = JSON.parse(await command.printed(/^.*\n/)) as { url: string; engines: Record<string, string> }
  expect(started.engines).toEqual({
    orders: expect.stringMatching(/^redis:\/\/:\*\*\*@/) as string,
    file: `file:${local}`,
    'file-2': `file:${local}-2`,
  })
  await using viewer = new Viewer(await fetch(`${started.url}events?engine=file-2`))
  expect((await viewer.has('hello')).engine).toMatchObject({ key: 'file-2', name: 'file' })
  expect((await viewer.has('engines')).engines.map(({ key }) => key)).toEqual(['orders', 'file', 'file-2'])
  expect((await fetch(`${started.url}healthz`)).status).toBe(200)
  expect(await (await fetch(`${started.url}metrics`)).text()).toContain('ringfence_dashboard_pages{engine="file-2"} 1')
  command.signal('SIGTERM')
  const { code, stdout, stderr } = await command.ended
  expect(code).toBe(0)
  withoutSecrets(stdout + stderr)
})

async function found(at: string, words: string): Promise<Past> {
  return (await (await fetch(`${at}past?words=${words}`)).json()) as Past
}

test('a history in a file outlives a restart; a disk that is full in the middle of a line stops neither the page nor the search', async () => {
  const file = home.file('history')
  const client = new Redis(url)
  const locks = createLocks(redis(client), { label: 'ada', renew: false, ttl: '5m' })
  const start = async (under: readonly string[] = []): Promise<{ at: string; command: Command }> => {
    const command = home.start(['dashboard', '--listen', '0', '--history', file], {
      env: { RINGFENCE_URL: url },
      under,
    })
    return { command, at: await command.printed(/is at (\S+)\n/) }
  }
  // As far as the process can tell, there is no room for more than this many bytes: a write is cut short, and the next one fails.
  const full = await start(['prlimit', '--fsize=2000', '--'])
  const viewer = new Viewer(await fetch(`${full.at}events`))
  await until(() => viewer.hasSnapshot, { what: 'a first look' })
  for (let order = 0; order < 30; order++) await locks.acquire(`order:${order}`)
  await until(() => viewer.rows.size >= 30, { what: 'all are seen' })
  const failing = await until(
    async () => {
      const past = await found(full.at, 'order')
      return past.trouble === null ? undefined : past
    },
    { what: 'the disk is full' },
  )
  expect(failing.entries).toHaveLength(30)
  expect(await (await fetch(`${full.at}metrics`)).text()).toMatch(
    /^ringfence_dashboard_history_failed_writes_total [1-9]/m,
  )
  await viewer[Symbol.asyncDispose]()
  full.command.signal('SIGKILL')
  await full.command.ended
  expect(statSync(file).size).toBe(2000)

  const roomy = await start()
  const before = (await found(roomy.at, 'order')).entries
  expect(before.length).toBeGreaterThan(3)
  expect(before.length).toBeLessThan(30)
  const again = new Viewer(await fetch(`${roomy.at}events`))
  await until(() => again.hasSnapshot, { what: 'a first look' })
  const next = await locks.acquire('mail')
  await again.sees('mail')
  expect(await found(roomy.at, `mail%20${next.token}`)).toMatchObject({ entries: [{ label: 'ada' }], trouble: null })
  expect((await found(roomy.at, 'order')).entries).toEqual(before)
  await again[Symbol.asyncDispose]()
  roomy.command.signal('SIGTERM')
  expect(await roomy.command.ended).toMatchObject({ code: 0, stderr: '' })
  await locks.close()
  client.disconnect()
})

test.each([
  [['--history', '/dev/null'], /--history: expected a file of this user alone, but \/dev\/null is no regular file/],
  [['--history', '/nowhere/history'], /--history: .* cannot be opened: ENOENT/],
  [['--engine', 'a=file:x', '--engine', 'a=file:y'], /--engine: two are called a/],
  [['--engine', 'a=nothing://x', '--engine', 'file:y'], /--engine: expected a URL with one of/],
  [['--listen', '0.0.0.0:0'], /without a token only this machine may look, but 0\.0\.0\.0 is open to others/],
  [['--listen', '[::]:0'], /without a token/],
  [['--listen', '127.0.0.1.example:0'], /without a token/],
  [['--listen', 'x:y'], /--listen: expected PORT or HOST:PORT, got 'x:y'/],
  [['--listen', '99999'], /--listen: expected/],
  [['--token-file', '/does/not/exist'], /--token-file: cannot be read/],
  [['--token-file', '/dev/null'], /--token-file: expected a token in/],
  [['--path', 'x'], /path: expected a path/],
  [['--origin', 'x'], /--origin: expected an origin/],
  [['--store', 'x'], /--store: /],
  [['name'], /expected no names/],
])('it does not start with %j', async (options, message) => {
  const { code, stdout, stderr } = await home.run(['dashboard', '--listen', '0', ...options], {
    env: { RINGFENCE_URL: url },
  })
  expect({ code, stdout }).toEqual({ code: EXIT.usage, stdout: '' })
  expect(stderr).toMatch(message)
})

test('a token that is too short is refused without being repeated', async () => {
  const { code, stderr } = await home.run(['dashboard'], { env: { RINGFENCE_DASHBOARD_TOKEN: 'swordfish' } })
  expect(code).toBe(EXIT.usage)
  expect(stderr).toMatch(/RINGFENCE_DASHBOARD_TOKEN: expected 16 to 512 characters, got 9/)
  expect(stderr).not.toContain('swordfish')
})

test('a port that is taken, and an engine that is away: the one ends it, the other is told on the page', async () => {
  const taken = await home.run(['dashboard', '--listen', `127.0.0.1:${server.port}`], { env: { RINGFENCE_URL: url } })
  expect(taken).toMatchObject({ code: EXIT.failed, stderr: expect.stringContaining('cannot listen: ') as string })
  await using other = await startRedis({ password: PASSWORD })
  const away = `redis://:${encodeURIComponent(PASSWORD)}@${other.host}:${other.port}`
  const command = home.start(['dashboard', '--listen', '0'], { env: { RINGFENCE_URL: away } })
  const at = await command.printed(/is at (\S+)/)
  await using viewer = new Viewer(await fetch(`${at}events`))
  await until(() => viewer.hasSnapshot, { what: 'a first look' })
  await other.kill()
  const { message } = await viewer.has('trouble')
  withoutSecrets(message!)
  command.signal('SIGTERM')
  expect(await command.ended).toMatchObject({ code: 0 })
})

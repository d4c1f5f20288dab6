import { writeFileSync } from 'node:fs'
import { afterAll, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { Home } from '../../../harness/command.ts'
import { startRedis } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

const PLANTED = 'Pl4nted/Pa55:word'
const READ = 'Pl4nted-read-token'
const WRITE = 'Pl4nted-write-token'
const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

/** All begin with it; with its characters in place, encoded, and in base64. */
const FORMS = ['Pl4nted', Buffer.from(PLANTED).toString('base64').slice(0, 9)]
function expectNoSecret(text: string): void {
  for (const secret of FORMS) expect(text).not.toContain(secret)
}

const encoded = encodeURIComponent(PLANTED)
const NOBODY = '127.0.0.1:1'
const URLS = [
  `redis://app:${encoded}@${NOBODY}`,
  `redis://:${encoded}@${NOBODY},127.0.0.2:1,127.0.0.3:1`,
  `redis+sentinel://:${encoded}@${NOBODY}/main?sentinelPassword=${encoded}`,
  `redis+cluster://:${encoded}@${NOBODY}`,
  `postgres://app:${encoded}@${NOBODY}/app`,
  `mariadb://app:${encoded}@${NOBODY}/app`,
  `mongodb://app:${encoded}@${NOBODY}/app?serverSelectionTimeoutMS=300`,
  `etcd://app:${encoded}@${NOBODY}`,
  `consul://${NOBODY}?token=${encoded}`,
  `consul://:${encoded}@${NOBODY}`,
  `zookeeper://app:${encoded}@${NOBODY}`,
]
/** What people mistype. */
const MISTYPED = [
  `redis:/app:${encoded}@${NOBODY}`,
  `app:${encoded}@${NOBODY}`,
  `redis://app:${PLANTED}@${NOBODY}`,
  `redis://app:${encoded}@${NOBODY}:x`,
  `redis://app:${encoded}@${NOBODY}?pasword=${encoded}`,
  `postgres://app:${PLANTED}@${NOBODY}:99999/app`,
  `mongodb://app:${PLANTED}@@${NOBODY}/a.b`,
  `nonsense://app:${encoded}@${NOBODY}`,
]
const VERBS = [
  ['run', '--wait', '100ms', 'a', '--', 'true'],
  ['status'],
  ['doctor'],
  ['release', '--force', '--yes', 'a'],
]

// The title has none: it is printed.
const TITLED = URLS.map((url) => [url.replaceAll(encoded, '…'), url] as const)

test.each(TITLED)('no command tells the password in %s', { timeout: 120_000 }, async (_title, url) => {
  const ended = await Promise.all(
    VERBS.flatMap(([verb = '', ...args]) =>
      [['--verbose'], ['--json']].map((flags) =>
        home.run([verb, ...flags, ...args], { env: { RINGFENCE_URL: url, RINGFENCE_REQUEST_TIMEOUT: '300ms' } }),
      ),
    ),
  )
  for (const { code, stdout, stderr } of ended) {
    expect(code).not.toBe(0)
    expect(stdout + stderr).not.toBe('')
    expectNoSecret(stdout + stderr)
  }
})

test('nor in a URL that is none', async () => {
  for (const url of MISTYPED) {
    const { code, stdout, stderr } = await home.run(['status', '--verbose'], { env: { RINGFENCE_URL: url } })
    expect([code, stdout]).toEqual([expect.any(Number) as number, ''])
    expect(code).not.toBe(0)
    expectNoSecret(stderr)
  }
})

test('nor when it breaks down itself, whatever the error says and has', async () => {
  writeFileSync(
    home.file('breaks.cjs'),
    `if (process.argv[1].endsWith('main.cjs')) {
      process.on('newListener', (event) => {
        if (event === 'uncaughtException')
          setTimeout(() => {
            throw Object.assign(new Error('broke with ' + process.env.RINGFENCE_URL), { password: process.env.RINGFENCE_URL })
          }, 200)
      })
    }`,
  )
  await using server = await startRedis({ password: PLANTED })
  const env = {
    RINGFENCE_URL: `redis://:${encoded}@${server.host}:${server.port}`,
    NODE_OPTIONS: `--require ${home.file('breaks.cjs')}`,
  }
  for (const flags of [[], ['--verbose'], ['--json']]) {
    const { code, stdout, stderr } = await home.run(['run', ...flags, 'a', '--', 'sleep', '30'], { env })
    expect([code, stdout]).toEqual([EXIT.failed, ''])
    expect(stderr).toContain('broke with redis://')
    expectNoSecret(stderr)
  }
})

test('nor do the pages, the figures and the audit of a dashboard, with its tokens', { timeout: 120_000 }, async () => {
  await using server = await startRedis({ password: 'right' })
  writeFileSync(home.file('read'), READ)
  writeFileSync(home.file('write'), WRITE)
  const engines = [`redis://:${encoded}@${server.host}:${server.port}`, ...URLS.slice(0, 6)]
  const tokens = ['--token-file', home.file('read'), '--write-token-file', home.file('write')]
  const history = ['--history', home.file('history')]
  const command = home.start([
    'dashboard',
    '--listen',
    '0',
    ...tokens,
    ...history,
    ...engines.flatMap((url, index) => ['--engine', `e${index}=${url}`]),
  ])
  const at = await command.printed(/is at (http:\/\/127\.0\.0\.1:\d+\/)\n/)
  await until(
    async () => {
      const metrics = await fetch(`${at}metrics`, { headers: { authorization: `Bearer ${READ}` } })
      return (await metrics.text()).match(/^ringfence_engine_reachable.* 0$/gm)?.length === engines.length
    },
    { what: 'every engine was looked at', withinMs: 60_000 },
  )
  const paths = ['', 'app.js', 'metrics', 'healthz', 'healthz/engines', 'history?resource=a', 'nothing']
  for (const authorization of [`Bearer ${READ}`, `Bearer ${WRITE}`, `Bearer ${READ}x`]) {
    const headers = { authorization }
    for (const one of [...paths, ...engines.map((_url, index) => `history?resource=a&engine=e${index}`)]) {
      const answer = await fetch(`${at}${one}`, { headers })
      expectNoSecret(`${JSON.stringify([...answer.headers])}${await answer.text()}`)
    }
    const json = { ...headers, 'content-type': 'application/json' }
    const body = JSON.stringify({ resource: 'a', token: '1' })
    const forced = await fetch(`${at}release`, { method: 'POST', headers: json, body })
    expectNoSecret(await forced.text())
  }
  for (const index of engines.keys()) {
    const events = await fetch(`${at}events?engine=e${index}`, { headers: { authorization: `Bearer ${READ}` } })
    const reader = events.body!.pipeThrough(new TextDecoderStream()).getReader()
    expectNoSecret((await reader.read()).value!)
    await reader.cancel()
  }
  command.signal('SIGTERM')
  const { code, stdout, stderr } = await command.ended
  expect(code).toBe(0)
  expectNoSecret(stdout + stderr)
})

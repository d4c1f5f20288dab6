import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dashboard, type Dashboard } from '../../src/dashboard/index.ts'
import type { ProblemDetails, RunsAnswer } from '../../src/dashboard/protocol.ts'
import { memory } from '../../src/engines/memory.ts'
import { redisGuard } from '../../src/guards/index.ts'
import { createLocks } from '../../src/locks.ts'
import type { RecordedRun, RunStore } from '../../src/runs.ts'
import { ManualClock, settled } from '../../harness/manual-clock.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { until } from '../../harness/until.ts'
import { ask, Viewer } from './viewer.ts'

let server: RedisServer
let client: Redis

beforeAll(async () => {
  server = await startRedis()
  client = new Redis(server.url)
})

afterAll(async () => {
  client?.disconnect()
  await server?.stop()
})

async function runsOf(page: Dashboard, job: string): Promise<RunsAnswer> {
  const response = await ask(page, `/runs?resource=${encodeURIComponent(job)}`)
  expect(response.status).toBe(200)
  return (await response.json()) as RunsAnswer
}

async function problemOf(response: Response): Promise<string> {
  const { status, detail } = (await response.json()) as ProblemDetails
  return `${status} ${detail}`
}

/** A store of a user's own. */
function storeOf(runs: RunStore['runs']): RunStore {
  return { recordRun: async () => undefined, runs }
}

/** Runs of one millisecond have no order. */
async function nextMillisecond(): Promise<void> {
  const now = Date.now()
  await until(() => Date.now() > now, { what: 'the next millisecond', everyMs: 1 })
}

test('what once has recorded is shown, the newest first, with its label and without a login', async () => {
  const engine = memory()
  const runs = redisGuard(client)
  await using locks = createLocks(engine, { label: '<b>alice</b>' })
  await using page = dashboard(engine, { runs })
  await using viewer = await Viewer.open(page)
  expect((await viewer.has('hello')).runs).toBe(true)
  expect(await runsOf(page, 'report')).toEqual({ resource: 'report', runs: [] })

  const before = Date.now()
  const tokens: string[] = []
  await locks.once('report', { runs }, async ({ token }) => tokens.unshift(String(token)))
  await nextMillisecond()
  const failure = 'no answer of postgres://ada:secret@db/app <script>'
  const failed = locks.once('report', { runs }, async ({ token }) => {
    tokens.unshift(String(token))
    throw new Error(failure)
  })
  await expect(failed).rejects.toThrow(failure)
  await nextMillisecond()
  await runs.recordRun({
    job: 'report',
    owner: 'of other software',
    token: 7n,
    engine: 'x',
    outcome: 'began',
    tookMs: 0,
  })

  const { runs: shown } = await runsOf(page, 'report')
  const alice = { label: '<b>alice</b>', owner: expect.stringMatching(/@<b>alice<\/b>$/) as string }
  const atMs = expect.any(Number) as number
  const tookMs = expect.any(Number) as number
  const message = 'no answer of postgres://***@db/app <script>'
  expect(shown).toEqual([
    { atMs, tookMs: null, outcome: 'began', message: null, owner: 'of other software', label: null, token: '7' },
    { ...alice, atMs, tookMs, outcome: 'failed', message, token: tokens[0] },
    { ...alice, atMs, tookMs, outcome: 'done', message: null, token: tokens[1] },
  ])
  for (const run of shown) expect(Math.abs(run.atMs - before)).toBeLessThan(60_000)
})

test('at most 20 are shown, also of a store that gives more', async () => {
  const guard = redisGuard(client)
  const run = { job: 'often', engine: 'x', outcome: 'done', tookMs: 5 } as const
  for (let token = 1n; token <= 22n; token++) await guard.recordRun({ ...run, owner: `o${100n + token}`, token })
  const newest = Array.from({ length: 20 }, (_, index) => String(22 - index))
  const careless = storeOf((job) => guard.runs(job, { limit: 1000 }))
  for (const runs of [guard, careless]) {
    await using page = dashboard(memory(), { runs })
    expect((await runsOf(page, 'often')).runs.map(({ token }) => token)).toEqual(newest)
  }
})

test('readers see runs; strangers, other sites and dashboards without a store do not', async () => {
  const token = 'reader-0123456789abcdef'
  const runs = redisGuard(client)
  await using page = dashboard(memory(), { runs, readToken: token })
  const address = '/runs?resource=secret'
  const authorization = `Bearer ${token}`
  expect((await ask(page, address, { headers: { authorization } })).status).toBe(200)
  expect((await ask(page, address)).status).toBe(401)
  const site = { authorization, 'sec-fetch-site': 'cross-site' }
  expect((await ask(page, address, { headers: site })).status).toBe(403)
  expect((await ask(page, address, { headers: { authorization }, method: 'POST' })).status).toBe(405)
  expect((await ask(page, '/runs', { headers: { authorization } })).status).toBe(400)

  await using without = dashboard(memory())
  await using viewer = await Viewer.open(without)
  expect((await viewer.has('hello')).runs).toBe(false)
  expect(await problemOf(await ask(without, address))).toBe('404 this dashboard was given no store of runs')
  expect(() => dashboard(memory(), { runs: {} as never })).toThrow(
    'runs: expected a guard such as postgresGuard(pool), or an object with runs, got',
  )
})

describe('a store that fails', () => {
  test.each<[string, RunStore['runs'], RegExp]>([
    [
      'rejects',
      () => Promise.reject(new Error('lost redis://:secret@host')),
      /^503 the store of runs: lost redis:\/\/\*\*\*@host$/,
    ],
    [
      'throws',
      () => {
        throw new Error('no way')
      },
      /^503 the store of runs: no way$/,
    ],
    ['gives something else', async () => ({}) as never, /^503 the store of runs: /],
    ['gives runs that are none', async () => [undefined] as never, /^503 the store of runs: /],
  ])('one that %s is a problem of the runs alone', async (_what, runs, problem) => {
    await using page = dashboard(memory(), { runs: storeOf(runs) })
    expect(await problemOf(await ask(page, '/runs?resource=job'))).toMatch(problem)
    expect((await ask(page, '/history?resource=job')).status).toBe(200)
  })

  test('one that is silent is waited for for 10 s, asked once for a job, and for 20 jobs at a time', async () => {
    const clock = new ManualClock()
    const asked: string[] = []
    const answers: ((runs: RecordedRun[]) => void)[] = []
    const runs = storeOf((job) => {
      asked.push(job)
      return new Promise((resolve) => answers.push(resolve))
    })
    await using page = dashboard(memory(), { runs, clock })
    const jobs = Array.from({ length: 20 }, (_, index) => `job ${index}`)
    const waiting = [...jobs, ...jobs].map((job) => ask(page, `/runs?resource=${job}`))
    const refused = await ask(page, '/runs?resource=another')
    expect(await problemOf(refused)).toBe('503 the store of runs: it has not answered 20 questions yet')
    expect(asked).toEqual(jobs)
    await clock.advance(10_000)
    for (const one of waiting)
      expect(await problemOf(await one)).toBe('503 the store of runs: no answer within 10000 ms')

    for (const answer of answers.splice(0)) answer([])
    await settled()
    const again = ask(page, '/runs?resource=another')
    await expect.poll(() => asked).toEqual([...jobs, 'another'])
    for (const answer of answers) answer([])
    expect(await (await again).json()).toEqual({ resource: 'another', runs: [] })
  })
})

import { readdirSync, writeFileSync } from 'node:fs'
import { afterAll, describe, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { startRedis } from '../../../harness/servers/redis.ts'
import { Home } from '../../../harness/command.ts'
import { processTree } from '../../../harness/process-tree.ts'
import { until } from '../../../harness/until.ts'

const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

const HOLDS = ['--', 'sh', '-c', 'echo ready; exec sleep 600']

describe('--permits', () => {
  test('lets so many run at a time, each with the number of its permit, and the next one after them', async () => {
    const shown = 'echo "ready $RINGFENCE_PERMIT $RINGFENCE_RESOURCE"; exec sleep 600'
    const run = ['run', '--permits', '2', 'gpu', '--', 'sh', '-c', shown]
    const [one, two] = [home.start(run), home.start(run)]
    const permits = [await one.printed(/ready (\d) gpu#\d/), await two.printed(/ready (\d) gpu#\d/)]
    expect(new Set(permits)).toEqual(new Set(['0', '1']))
    expect(await home.run(['run', '-n', '--permits', '2', 'gpu', '--', 'true'])).toMatchObject({
      code: EXIT.held,
      stderr: expect.stringMatching(
        /^ringfence: all 2 permits of 'gpu' were held, by \S+:\d+ \(sh; pool of 2\), \S+:\d+ \(sh; pool of 2\)\n$/,
      ),
    })
    expect(await home.run(['run', '--wait', '300ms', '--permits', '2', 'gpu', '--', 'true'])).toMatchObject({
      code: EXIT.waitTimeout,
      stderr: expect.stringMatching(
        /^ringfence: waited 300 ms while all 2 permits of 'gpu' were held, by \S+:\d+ \(sh; pool of 2\), /,
      ),
    })
    const status = await home.run(['status', 'gpu', '--permits', '2'])
    expect(status).toMatchObject({ code: 0, stderr: '' })
    expect(status.stdout).toMatch(/^2 of 2 permits of 'gpu' are held\nRESOURCE .*\ngpu#0 .*\ngpu#1 .*\n$/)
    const lower = await home.run(['status', 'gpu', '--permits', '1'])
    expect(lower.stdout).toMatch(/^1 of 1 permits of 'gpu' are held\n1 more, above that number: /)
    const waiting = home.start(run)
    two.signal('SIGTERM')
    expect(await two.ended).toMatchObject({ code: 143 })
    expect(await waiting.printed(/ready (\d)/)).toBe(permits[1])
  })

  test('the permit of a holder that was killed comes back', async () => {
    const run = ['run', '--ttl', '2s', '--permits', '1', 'killed', ...HOLDS]
    const holder = home.start(run)
    await holder.printed(/ready/)
    const next = home.start(run)
    for (const pid of processTree(holder.pid)) process.kill(pid, 'SIGKILL')
    await next.printed(/ready/)
  })

  test('is in the report for machines, and a command within has no number of another lease', async () => {
    const inner = '"$NODE" "$RINGFENCE" run inner -- sh -c \'echo "inner=$RINGFENCE_PERMIT"\''
    const { code, stdout, stderr } = await home.run(['run', '--json', '--permits', '1', 'outer', '-c', inner])
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'inner=\n' })
    expect(JSON.parse(stderr)).toMatchObject({ resources: ['outer'], outcome: 'ended', permit: 0 })
  })

  test('nobody has one: status says so and exits with 1', async () => {
    expect(await home.run(['status', 'free', '--permits', '3'])).toMatchObject({
      code: EXIT.no,
      stdout: "0 of 3 permits of 'free' are held\n",
    })
  })
})

describe('-c', () => {
  test('runs a line by the shell', async () => {
    expect(await home.run(['run', 'line', '-c', 'echo one && echo "$RINGFENCE_RESOURCE"; exit 7'])).toMatchObject({
      code: 7,
      stdout: 'one\nline\n',
      stderr: '',
    })
    expect(await home.run(['elect', 'line', '-c', 'echo leads | tr a-z A-Z'])).toMatchObject({ stdout: 'LEADS\n' })
  })
})

describe('-E', () => {
  test('is the exit code when the lease was not granted, and not otherwise', async () => {
    const holder = home.start(['run', 'busy', ...HOLDS])
    await holder.printed(/ready/)
    const touch = ['--', 'touch', home.file('never')]
    expect(await home.run(['run', '-n', '-E', '0', 'busy', ...touch])).toMatchObject({ code: 0 })
    expect(await home.run(['run', '--wait', '200ms', '--conflict-exit-code', '75', 'busy', ...touch])).toMatchObject({
      code: 75,
    })
    expect(await home.run(['run', '-n', '-E', '75', 'idle', '--', 'sh', '-c', 'exit 3'])).toMatchObject({ code: 3 })
    expect(readdirSync(home.folder)).not.toContain('never')
  })
})

test('--skip-ok makes a run that was skipped a success', async () => {
  const job = ['run', '--once', '--at-least', '1m', 'job', '--', 'echo', 'ran']
  expect(await home.run(job)).toMatchObject({ code: 0, stdout: 'ran\n' })
  expect(await home.run(job)).toMatchObject({ code: EXIT.skipped })
  const skipped = await home.run(['run', '--skip-ok', ...job.slice(1)])
  expect(skipped).toMatchObject({ code: 0, stdout: '' })
  expect(skipped.stderr).toMatch(/^ringfence: skipped: 'job' runs, or has just run, /)
})

test('--shared is refused where the engine has no shared leases, and nothing is run', async () => {
  await using server = await startRedis()
  const { code, stdout, stderr } = await home.run(['run', '--shared', 'read', '--', 'echo', 'ran'], {
    env: { RINGFENCE_URL: server.url },
  })
  const refused = {
    code: EXIT.usage,
    stdout: '',
    stderr: expect.stringMatching(/^ringfence: --shared: the redis engine has no/),
  }
  // On an engine that has them it runs.
  expect([refused, { code: 0, stdout: 'ran\n', stderr: '' }]).toContainEqual({ code, stdout, stderr })
})

test.each([
  ['-c and a command', ['run', 'x', '-c', 'true', '--', 'true'], '-c and -- exclude each other'],
  ['no command at all', ['run', 'x'], 'expected -- and then a command'],
  [
    'no permits',
    ['run', '--permits', '0', 'x', '-c', 'true'],
    "--permits: expected a whole number from 1 to 1000, got '0'",
  ],
  [
    'half a permit',
    ['run', '--permits', '1.5', 'x', '-c', 'true'],
    "--permits: expected a whole number from 1 to 1000, got '1.5'",
  ],
  ['permits of several', ['run', '--permits', '2', 'x', 'y', '-c', 'true'], '--permits: expected one resource'],
  [
    'a permit that is shared',
    ['run', '--permits', '2', '--shared', 'x', '-c', 'true'],
    '--permits and --shared exclude each other',
  ],
  [
    'a pool with the name of a permit',
    ['run', '--permits', '2', 'x#1', '-c', 'true'],
    'RESOURCE: expected one that does not end like the name of a permit',
  ],
  [
    'a job with permits',
    ['run', '--once', '--permits', '2', 'x', '-c', 'true'],
    '--once and --permits exclude each other',
  ],
  ['a job that is shared', ['run', '--once', '--shared', 'x', '-c', 'true'], '--once and --shared exclude each other'],
  [
    'a job with -E',
    ['run', '--once', '-E', '2', 'x', '-c', 'true'],
    '--once and -E exclude each other\n  next: --skip-ok',
  ],
  ['--skip-ok alone', ['run', '--skip-ok', 'x', '-c', 'true'], '--skip-ok: only with --once'],
  [
    'an exit code that is none',
    ['run', '-E', '256', 'x', '-c', 'true'],
    "-E: expected a whole number from 0 to 255, got '256'",
  ],
  ['a pool without a name', ['status', '--permits', '2'], '--permits: expected the name of a pool'],
])('%s is wrong usage', async (_, args, message) => {
  const { code, stderr } = await home.run(args)
  expect(stderr).toContain(message)
  expect(code).toBe(EXIT.usage)
})

test('many commands with few permits never overlap by more than that', async () => {
  const counter = `mkdir "in-$RINGFENCE_PERMIT" || exit 99; sleep 0.05; rmdir "in-$RINGFENCE_PERMIT"`
  writeFileSync(home.file('counter.sh'), counter)
  const runs = Array.from({ length: 8 }, () => home.run(['run', '--permits', '3', 'few', '--', 'sh', 'counter.sh']))
  let most = 0
  const counted = until(
    () => {
      most = Math.max(most, readdirSync(home.folder).filter((name) => name.startsWith('in-')).length)
      return over
    },
    { what: 'all have run', withinMs: 50_000, everyMs: 5 },
  )
  let over = false
  const ended = await Promise.all(runs)
  over = true
  await counted
  expect(ended.map(({ code }) => code)).toEqual(runs.map(() => 0))
  expect(most).toBeLessThanOrEqual(3)
})

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { afterAll, expect, test } from 'vitest'
import { EXIT, EXIT_TABLE } from '../../../src/cli/exit-codes.ts'
import { startEtcdCluster } from '../../../harness/servers/etcd.ts'
import { Home, RINGFENCE, type Ended } from '../../../harness/command.ts'
import { until } from '../../../harness/until.ts'

const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

test.each([0, 1, 2, 42, 126, 193, 255])('run passes the exit code %d of the command on', async (code) => {
  expect(await home.run(['run', `code-${code}`, '--', 'sh', '-c', `exit ${code}`])).toMatchObject({ code, stderr: '' })
})

test.each([
  ['TERM', 143],
  ['KILL', 137],
  ['SEGV', 139],
])('a command that dies of SIG%s gives 128 + its number', async (signal, code) => {
  expect(await home.run(['run', `dies-${signal}`, '--', 'sh', '-c', `kill -${signal} $$`])).toMatchObject({ code })
})

test('held, timed out and skipped have codes of their own, and nothing is run', async () => {
  const holder = home.start(['run', 'taken', '--', 'sh', '-c', 'echo ready; exec sleep 60'])
  await holder.printed(/ready/)
  const touch = ['--', 'touch', home.file('never')]
  expect(await home.run(['run', '--no-wait', 'taken', ...touch])).toMatchObject({
    code: EXIT.held,
    stderr: expect.stringMatching(
      /^ringfence: 'taken' is held by \S+ \(sh\) \(for \d\S* m?s, \d+ s left unless renewed, token \d+\)\n$/,
    ) as string,
  })
  expect(await home.run(['run', '--wait', '200ms', 'taken', ...touch])).toMatchObject({
    code: EXIT.waitTimeout,
    stderr: expect.stringMatching(/^ringfence: waited 200 ms: 'taken' is held by \S+ \(sh\) \(for /) as string,
  })
  const skipped = await home.run(['run', '--once', 'taken', ...touch])
  expect(skipped.stderr).toMatch(
    /^ringfence: skipped: 'taken' runs, or has just run, on \S+ \(sh\) \(began \d\S* m?s ago; not again for \d+ s, or longer if it still runs\)\n$/,
  )
  expect(skipped.code).toBe(EXIT.skipped)
  const toMachines = await home.run(['run', '--json', '--once', 'taken', ...touch])
  expect(JSON.parse(toMachines.stderr)).toMatchObject({ outcome: 'skipped', holder: expect.stringContaining('@') })
  expect(await home.run(['run', '--quiet', '--no-wait', 'taken', ...touch])).toMatchObject({
    code: EXIT.held,
    stderr: '',
  })
  expect(() => readFileSync(home.file('never'))).toThrow('ENOENT')
  holder.signal('SIGTERM')
  expect(await holder.ended).toMatchObject({ code: 143 })
})

test('a run inside of the one that holds its name is told so, whether it waits or not', async () => {
  const inner = (...args: string[]): Promise<Ended> =>
    home.run(['run', 'twice', '--', process.execPath, RINGFENCE, 'run', ...args, 'twice', '--', 'true'])
  const around = "'twice' is held by the very ringfence that this one is inside of, which waits for it"
  const next = 'leave out the inner one, or give it another name'
  expect(await inner('--no-wait')).toMatchObject({ code: EXIT.held, stderr: `ringfence: ${around}; ${next}\n` })
  expect(await inner('--wait', '200ms')).toMatchObject({
    code: EXIT.waitTimeout,
    stderr: `ringfence: waited 200 ms: ${around}; ${next}\n`,
  })
  // It waits forever, as it was asked to: the outer one may be ended by something else.
  const waiting = home.start(['run', 'twice', '--', process.execPath, RINGFENCE, 'run', 'twice', '--', 'true'])
  await until(() => waiting.stderr.includes(`waiting: ${around}`), { what: 'it says for whom it waits' })
  await waiting.kill()
})

const jobOf = (time: string): string[] => ['run', '--once', '--at-least', time, time, '--', 'sh', '-c', 'echo ran']

test('--once --at-least keeps others from running it again for so long, however soon it was done', async () => {
  expect(await home.run(jobOf('1m'))).toMatchObject({ code: 0, stdout: 'ran\n' })
  expect(await home.run(jobOf('1m'))).toMatchObject({ code: EXIT.skipped, stdout: '' })
  const beganMs = performance.now()
  expect(await home.run(jobOf('3s'))).toMatchObject({ code: 0, stdout: 'ran\n' })
  await until(async () => (await home.run(jobOf('3s'))).code === 0, { what: 'it runs again', everyMs: 100 })
  expect(performance.now() - beganMs).toBeGreaterThan(3000)
})

test.each([
  ['an unknown option', ['run', '--tll', '5s', 'x', '--', 'true'], 'unknown option --tll; did you mean --ttl?'],
  ['no command', ['run', 'x', 'true'], 'expected -- and then a command'],
  ['no resource', ['run', '--', 'true'], 'expected the name of a resource'],
  [
    'a duration without a unit',
    ['run', '--ttl', '30', 'x', '--', 'true'],
    "--ttl: expected a time with a unit, such as 250ms, 30s, 5m, 1h; got '30' (30s? 30ms?)",
  ],
  [
    'a name that is taken for a duration',
    ['run', '--wait', 'hello', '--', 'true'],
    "--wait: expected a time with a unit, such as 250ms, 30s, 5m, 1h; got 'hello'",
  ],
  ['a command without a resource', ['run', '--', '-x', 'true'], 'expected the name of a resource'],
  ['an election without a name', ['elect', '--', '-x', 'true'], 'expected one name'],
  ['an empty engine', ['run', '--engine', '', 'x', '--', 'true'], '--engine is empty'],
  [
    'an engine’s parameter that does not exist',
    ['run', '--engine', 'redis://a?prefx=x', 'x', '--', 'true'],
    "unknown parameter 'prefx' in redis://a?prefx=x; did you mean prefix?\n  next: known here: prefix, requestTimeout,",
  ],
  [
    'a login of each host, where all have the same',
    ['run', '--engine', 'etcd://u:pw@a,u:pw@b,u:pw@c', 'x', '--', 'true'],
    '--engine: expected one login for all hosts, before the first, got etcd://u:***@a,u:***@b,u:***@c\n',
  ],
  [
    'a password with a comma',
    ['run', '--engine', 'redis://u:p,w@a', 'x', '--', 'true'],
    'got redis://u:***@a\n  next: a comma, a slash or an @ in a password is written as %2C, %2F or %40',
  ],
  [
    'sentinels without the name of a master',
    ['run', '--engine', 'redis+sentinel://a,b', 'x', '--', 'true'],
    '--engine: expected the name of the master after the sentinels, got redis+sentinel://a,b\n  next: redis+sentinel://host:26379,host:26379/MASTER;',
  ],
  [
    'a database of a Cluster',
    ['run', '--engine', 'redis+cluster://a,b/1', 'x', '--', 'true'],
    "--engine: expected no database, got '/1': a Cluster has the database 0 alone",
  ],
  [
    'sentinels as another tool writes them',
    ['run', '--engine', 'redis-sentinel://a,b/0#main', 'x', '--', 'true'],
    'got redis-sentinel://a,b/0#main\n  next: write redis+sentinel://HOST:26379,HOST:26379/MASTER',
  ],
  [
    'a Cluster as another tool writes it',
    ['run', '--engine', 'rediss-cluster://a', 'x', '--', 'true'],
    'next: write redis+cluster://HOST:6379,HOST:6379, or rediss+cluster:// with TLS',
  ],
  [
    'a job that would end before its least time',
    ['run', '--once', '--at-least', '5m', '--max-hold', '1m', 'x', '--', 'true'],
    '--max-hold: expected at least as long as --at-least',
  ],
  [
    'a ttl too short to stop a command in',
    ['run', '--ttl', '1900ms', 'x', '--', 'true'],
    '--ttl: expected at least 2 s',
  ],
  [
    'a grace that eats up the ttl',
    ['run', '--ttl', '4s', '--grace', '3s', 'x', '--', 'true'],
    '--grace: expected 0 ms to 2 s',
  ],
  [
    'a grace that eats up the time that the lease may be held',
    ['run', '--max-hold', '5s', '--grace', '5s', 'x', '--', 'true'],
    '--max-hold: expected more than --grace (5 s) and 400 ms, got 5s\n  next: ',
  ],
  [
    'a contradiction',
    ['run', '--wait', '1s', '--no-wait', 'x', '--', 'true'],
    '--wait and --no-wait exclude each other',
  ],
  [
    'an engine nobody knows',
    ['run', '--engine', 'carrier-pigeon://x', 'x', '--', 'true'],
    '--engine: expected a URL with one of',
  ],
  [
    'a name for doctor',
    ['doctor', 'redis://a'],
    "doctor: expected no names, got 'redis://a'; an engine is given by --engine URL",
  ],
  ['a name for init', ['init', 'x'], "init: expected no names, got 'x'; an engine is given by --engine URL"],
  ['a name for bench', ['bench', 'x', 'y'], "bench: expected no names, got 'x y'; an engine is given by --engine URL"],
  ['a name for dashboard', ['dashboard', 'x'], "dashboard: expected no names, got 'x'"],
  ['a name for advise', ['advise', 'x'], "advise: expected no names, got 'x'\n"],
  ['a name for held', ['held', 'x'], "held: expected no names, got 'x'\n"],
  ['two shells', ['completion', 'bash', 'zsh'], "completion: expected one shell, got 'bash zsh'"],
  ['an empty label', ['run', '--label', '', 'x', '--', 'true'], '--label is empty'],
  ['a label of blanks', ['run', '--label', ' ', 'x', '--', 'true'], '--label is empty'],
  ['nothing to do when it is lost', ['run', '--on-lost', '', 'x', '--', 'true'], '--on-lost is empty'],
  ['a doubt without a value', ['run', 'x', '--on-doubt'], '--on-doubt: expected keep or stop, got nothing'],
  [
    'a doubt that is neither kept nor an end',
    ['elect', '--on-doubt', 'wait', 'x', '--', 'true'],
    "--on-doubt: expected keep or stop, got 'wait'\n  next: --on-doubt stop ends",
  ],
  ['how often to look, once', ['status', '--every', '2s'], '--every: only with --watch'],
  ['port 0', ['status', '-e', 'redis://a:0'], '--engine: expected a port from 1 to 65535, got 0 in redis://a:0'],
  ['a port too high', ['status', '-e', 'postgres://u@a:65536/x'], 'expected a port from 1 to 65535, got 65536 in'],
  [
    'one server twice',
    ['status', '-e', 'redis://a,b,a:6379'],
    'expected each server once, got a:6379 twice in redis://a,b,a:6379',
  ],
  ...['redis', 'postgres', 'mariadb', 'mongodb', 'etcd', 'consul', 'zookeeper'].map(
    (scheme): [string, string[], string] => [
      `a bare % in a password of ${scheme}`,
      ['status', '-e', `${scheme}://u:100%@a/b`],
      `after each %, got ${scheme}://u:***@a/b\n  next: write % as %25, also in a password\n`,
    ],
  ),
  [
    'a parameter that the driver does not know',
    ['status', '-e', 'mongodb://u@127.0.0.1:1/app?requstTimeout=10s'],
    '--engine: expected a URL that mongodb takes, got mongodb://u@127.0.0.1:1/app?requstTimeout=10s: option',
  ],
  [
    'a note that is too long',
    ['run', '--note', 'a'.repeat(201), 'x', '--', 'true'],
    '--note: expected a string of at most 200',
  ],
  ['a bare % in a path', ['status', '-e', 'file:/tmp/100%.db'], 'next: write % as %25'],
  ['an unknown command', ['rum'], "unknown command 'rum'; did you mean run?"],
  ['an option before the command', ['--quiet'], 'expected a command, got the option --quiet: options stand behind'],
  [
    'no number of permits',
    ['run', '--permits', '0', 'x', '--', 'true'],
    "got '0'\n  next: ringfence run --permits 4 NAME -- COMMAND",
  ],
  [
    'a least time without --once',
    ['run', '--at-least', '5s', 'job', '--', 'true'],
    '--at-least: only with --once\n  next: ringfence run --once --at-least 5s job -- COMMAND',
  ],
  [
    'an option without its value',
    ['dashboard', '--token-file'],
    '--token-file: expected FILE, got nothing\n  next: ringfence dashboard',
  ],
  [
    'a token file that is not there',
    ['dashboard', '--token-file', '/nope'],
    'next: openssl rand -hex 32 > FILE makes one',
  ],
  [
    'a leader that shares',
    ['elect', '--shared', 'x', '--', 'true'],
    'there is one leader; `ringfence run --shared` is for many',
  ],
  ['an empty name', ['run', '', '--', 'true'], 'resource: expected a name, got an empty string'],
])('%s is wrong usage', async (_what, args, message) => {
  const { code, stdout, stderr } = await home.run(args)
  expect(stderr).toContain(message)
  expect(stderr).toMatch(/^ {2}next: \S/m)
  expect({ code, stdout }).toEqual({ code: EXIT.usage, stdout: '' })
})

test('a command that is not there is told before anything is locked, with the code that shells use', async () => {
  expect(await home.run(['run', 'x', '--', 'no-such-command'])).toMatchObject({
    code: EXIT.notFound,
    stderr: expect.stringContaining('no-such-command: command not found') as string,
  })
  writeFileSync(home.file('script'), '#!/bin/sh\n')
  expect(await home.run(['run', 'x', '--', './script'])).toMatchObject({ code: EXIT.notExecutable })
  mkdirSync(home.file('folder'))
  expect(await home.run(['run', 'x', '--', './folder'])).toMatchObject({
    code: EXIT.notExecutable,
    stderr: expect.stringContaining('./folder: is a folder\n') as string,
  })
  expect(await home.run(['run', 'x', '--', './script/x'])).toMatchObject({
    code: EXIT.notFound,
    stderr: expect.stringContaining('./script/x: command not found\n') as string,
  })
})

test.each([
  ['not there', '/nope/sh', EXIT.notFound, 'was not found'],
  ['a folder', '/', EXIT.notExecutable, 'cannot be executed'],
])('a script whose interpreter is %s is told before anything is locked', async (_what, interpreter, code, why) => {
  await using own = new Home()
  writeFileSync(own.file('script'), `#! ${interpreter} -e\n`, { mode: 0o755 })
  expect(await own.run(['run', 'x', '--', './script'])).toMatchObject({
    code,
    stderr: expect.stringMatching(
      new RegExp(`^ringfence: ./script: its interpreter ${interpreter} ${why}\n  next: correct its first line`),
    ) as string,
  })
  expect(existsSync(own.file('ringfence'))).toBe(false)
})

test('a script runs whose interpreter is there', async () => {
  writeFileSync(home.file('good'), '#!/usr/bin/env sh\necho ran', { mode: 0o755 })
  expect(await home.run(['run', 'x', '--', './good'])).toMatchObject({ code: 0, stdout: 'ran\n', stderr: '' })
})

test('a command that turns out to be none when the lease is ours does not count as a run of --once --at-least', async () => {
  // A program whose loader is not there: only the kernel finds that out.
  const program = Buffer.from(readFileSync(process.execPath).subarray(0, 1_000_000))
  const loader = program.indexOf('/ld-linux')
  expect(loader).toBeGreaterThan(0)
  program.write('/no-linux', loader)
  writeFileSync(home.file('program'), program, { mode: 0o755 })
  const job = ['run', '--once', '--at-least', '1h', 'no program', '--']
  expect(await home.run([...job, './program'])).toMatchObject({
    code: EXIT.notFound,
    stderr: expect.stringContaining('ringfence: ./program: could not be executed, so nothing was done') as string,
  })
  expect(await home.run(['status', 'no program'])).toMatchObject({ code: EXIT.no })
  // The same code as the command's own is a run.
  expect(await home.run([...job, 'sh', '-c', 'exit 127'])).toMatchObject({ code: 127, stderr: '' })
  expect(await home.run([...job, 'true'])).toMatchObject({ code: EXIT.skipped })
})

test('a command runs under a --max-hold that is shorter than the default grace would be', async () => {
  for (const maxHold of ['5s', '2s'])
    expect(await home.run(['run', '--max-hold', maxHold, 'short', '--', 'echo', 'done'])).toMatchObject({
      code: 0,
      stdout: 'done\n',
      stderr: '',
    })
})

test.each([[['--version']], [['help']], [['status']], [['status', '--json']], [['completion', 'fish']]])(
  'a result that can not be written is no success: %j',
  async (args) => {
    const under = ['sh', '-c', 'exec "$@" >/dev/full', 'sh']
    expect(await home.run(args, { under })).toMatchObject({
      code: EXIT.failed,
      stderr: expect.stringMatching(/^ringfence: stdout cannot be written to: ENOSPC.*\n$/) as string,
    })
    const fails = await home.run(['status', '-e', 'redis://127.0.0.1:1'], { under })
    expect(fails.code).toBe(EXIT.engine)
  },
)

test('an engine that gives no answer is not a resource that is busy', async () => {
  await using cluster = await startEtcdCluster()
  const [member, ...others] = cluster.nodes
  for (const other of others) await other.kill()
  const env = { RINGFENCE_URL: `etcd://127.0.0.1:${member!.port}` }
  expect(await home.run(['run', '--wait', '1s', 'x', '--', 'true'], { env })).toMatchObject({ code: EXIT.engine })
})

test('an engine that is not there fails at once without --wait, and is waited for with it', async () => {
  const env = { RINGFENCE_URL: 'redis://127.0.0.1:1' }
  const { code, stderr } = await home.run(['run', 'x', '--', 'true'], { env })
  expect(stderr).toMatch(/^ringfence: the engine redis:\/\/127\.0\.0\.1:1 cannot be used: .*ECONNREFUSED.*\n {2}next: /)
  expect(code).toBe(EXIT.engine)
  const began = performance.now()
  expect(await home.run(['run', '--wait', '1500ms', 'x', '--', 'true'], { env })).toMatchObject({ code: EXIT.engine })
  expect(performance.now() - began).toBeGreaterThan(1500)
})

test('--json tells how it went in one object on stderr, since stdout is the command’s', async () => {
  const { stdout, stderr } = await home.run(['run', '--json', 'a', 'b', '--', 'sh', '-c', 'echo out; exit 3'])
  expect(stdout).toBe('out\n')
  expect(JSON.parse(stderr)).toEqual({
    resources: ['a', 'b'],
    outcome: 'ended',
    exitCode: 3,
    token: expect.stringMatching(/^\d+$/) as string,
    owner: expect.stringContaining('@') as string,
    engine: expect.any(String) as string,
    waitedMs: expect.any(Number) as number,
  })
  const failed = await home.run(['run', '--json', '--ttl', '1', 'x', '--', 'true'])
  expect(JSON.parse(failed.stderr)).toMatchObject({ error: { exitCode: EXIT.usage } })
})

test('the codes keep out of the way of the usual ones, and the documentation has them all', () => {
  const own = [EXIT.held, EXIT.waitTimeout, EXIT.lost, EXIT.engine, EXIT.usage, EXIT.skipped, EXIT.failed]
  // 0-2, sysexits, 124-127 of timeout and shells, 128 + n, and what systemd gives.
  expect(own.filter((code) => code <= 192 || code >= 200)).toEqual([])
  expect(new Set(own).size).toBe(own.length)
  const documented = readFileSync(new URL('../../../docs/cli.md', import.meta.url), 'utf8')
  for (const [code, meaning] of EXIT_TABLE) expect(documented).toContain(`| ${code} | ${meaning} |`)
  for (const code of own) expect(EXIT_TABLE.map(([text]) => text)).toContain(String(code))
})

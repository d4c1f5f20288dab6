import { readFileSync, writeFileSync } from 'node:fs'
import { afterAll, expect, test } from 'vitest'
import { EXIT, EXIT_TABLE } from '../../../src/cli/exit-codes.ts'
import { Home } from '../../support/command.ts'
import { until } from '../../support/until.ts'

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
    stderr: expect.stringMatching(/^ringfence: 'taken' is held by \S+, for \d+ ms more unless renewed\n$/) as string,
  })
  expect(await home.run(['run', '--wait', '200ms', 'taken', ...touch])).toMatchObject({
    code: EXIT.waitTimeout,
    stderr: expect.stringMatching(/^ringfence: waited 200 ms for 'taken', held by/) as string,
  })
  expect(await home.run(['run', '--once', 'taken', ...touch])).toMatchObject({ code: EXIT.skipped })
  expect(await home.run(['run', '--quiet', '--no-wait', 'taken', ...touch])).toMatchObject({
    code: EXIT.held,
    stderr: '',
  })
  expect(() => readFileSync(home.file('never'))).toThrow('ENOENT')
  holder.signal('SIGTERM')
  expect(await holder.ended).toMatchObject({ code: 143 })
})

test('--once --at-least keeps others from running it again for so long, however soon it was done', async () => {
  const job = ['run', '--once', '--at-least', '3s', 'tick', '--', 'sh', '-c', 'echo ran']
  expect(await home.run(job)).toMatchObject({ code: 0, stdout: 'ran\n' })
  expect(await home.run(job)).toMatchObject({ code: EXIT.skipped, stdout: '' })
  await until(async () => (await home.run(job)).code === 0, { what: 'it runs again', everyMs: 100 })
})

test.each([
  ['an unknown option', ['run', '--tll', '5s', 'x', '--', 'true'], 'unknown option --tll; did you mean --ttl?'],
  ['no command', ['run', 'x', 'true'], 'expected -- and then a command'],
  ['no resource', ['run', '--', 'true'], 'expected the name of a resource'],
  ['a duration without a unit', ['run', '--ttl', '5', 'x', '--', 'true'], '--ttl: expected milliseconds or a duration'],
  [
    'a ttl too short to stop a command in',
    ['run', '--ttl', '1900ms', 'x', '--', 'true'],
    '--ttl: expected at least 2000 ms',
  ],
  [
    'a grace that eats up the ttl',
    ['run', '--ttl', '4s', '--grace', '3s', 'x', '--', 'true'],
    '--grace: expected 0 ms to 2000 ms',
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
  ['an unknown command', ['rum'], "unknown command 'rum'; did you mean run?"],
  ['an empty name', ['run', '', '--', 'true'], 'resource: expected a name, got an empty string'],
])('%s is wrong usage', async (_what, args, message) => {
  const { code, stdout, stderr } = await home.run(args)
  expect(stderr).toContain(message)
  expect({ code, stdout }).toEqual({ code: EXIT.usage, stdout: '' })
})

test('a command that is not there is told before anything is locked, with the code that shells use', async () => {
  expect(await home.run(['run', 'x', '--', 'no-such-command'])).toMatchObject({
    code: EXIT.notFound,
    stderr: expect.stringContaining('no-such-command: command not found') as string,
  })
  writeFileSync(home.file('script'), '#!/bin/sh\n')
  expect(await home.run(['run', 'x', '--', './script'])).toMatchObject({ code: EXIT.notExecutable })
})

test('an engine that is not there fails at once without --wait, and is waited for with it', async () => {
  const env = { RINGFENCE_URL: 'redis://127.0.0.1:1' }
  const { code, stderr } = await home.run(['run', 'x', '--', 'true'], { env })
  expect(stderr).toMatch(/^ringfence: the engine redis:\/\/127\.0\.0\.1:1 can't be used: .*ECONNREFUSED.*\n {2}next: /)
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

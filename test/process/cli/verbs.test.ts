import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { Home, RINGFENCE } from '../../../harness/command.ts'
import { startRedis, startRedisNodes } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

const PASSWORD = 's3cret/with:odd@signs'
let servers: Awaited<ReturnType<typeof startRedisNodes>>
let quorumUrl: string
const home = new Home()

beforeAll(async () => {
  servers = await startRedisNodes(3, { password: PASSWORD })
  const hosts = servers.nodes.map(({ host, port }) => `${host}:${port}`).join(',')
  quorumUrl = `redis://:${encodeURIComponent(PASSWORD)}@${hosts}`
})
afterAll(async () => {
  await home[Symbol.asyncDispose]()
  await servers.stop()
})

/** Everything that a run printed, and that others could see of it. */
const withoutSecret = (text: string): void => {
  expect(text).not.toContain(PASSWORD)
  expect(text).not.toContain(encodeURIComponent(PASSWORD))
}

test('the command finds its lease in the environment, on one resource and on several', async () => {
  const show =
    'printf "%s\\n" "$RINGFENCE_RESOURCE" "$RINGFENCE_TOKEN" "$RINGFENCE_OWNER" "$RINGFENCE_ENGINE"; cat "$RINGFENCE_DEADLINE_FILE"'
  const { stdout } = await home.run(['run', '--label', 'me', 'stock:7', 'order:42', '--', 'sh', '-c', show])
  expect(stdout).toMatch(/^order:42\nstock:7\n\d+\n[0-9a-f]{32}@me \(sh\)\nfile:.*\n(uptime|unix)( \d+){4}\n$/)
})

test('status shows who holds what, also to machines, and --watch tells each change in a line', async () => {
  const watching = home.start(['status', 'shown', '--watch', '--json', '--every', '100ms'])
  await watching.printed(/"leases":\[\]/)
  const holder = home.start(['run', '--label', 'alice', 'shown', '--', 'sh', '-c', 'echo ready; read -r _'])
  await holder.printed(/ready/)
  const { code, stdout } = await home.run(['status'])
  expect({ code, stdout }).toEqual({
    code: 0,
    stdout: expect.stringMatching(
      /^RESOURCE +HOLDER +TOKEN +SINCE +LEFT +WAITING\nshown +alice \(sh\) +\d+ .* \d+ s +0\n$/,
    ) as string,
  })
  expect(await home.run(['status', 'other'])).toMatchObject({
    code: EXIT.no,
    stdout: expect.stringMatching(/^'other' is free on file:\/.*\/locks\.db\n$/) as string,
  })
  await watching.printed(/"owner":"[0-9a-f]+@alice \(sh\)","note":"sh"/)
  holder.type('\n')
  await holder.ended
  await watching.printed(/alice[^]*"leases":\[\]/)
  watching.signal('SIGINT')
  expect(await watching.ended).toMatchObject({ code: 0, stderr: '' })
  const lines = watching.stdout.trim().split('\n')
  expect(lines.map((line) => (JSON.parse(line) as { leases: unknown[] }).leases.length)).toEqual([0, 1, 0])
})

test('what is free is free on an engine that is named, without its password', async () => {
  const env = { RINGFENCE_URL: quorumUrl }
  const texts = [
    ...(await Promise.all([home.run(['status'], { env }), home.run(['status', 'unused'], { env })])).map(
      ({ stdout }) => stdout,
    ),
    (await home.run(['release', 'unused'], { env })).stderr,
  ]
  const hosts = servers.nodes.map(({ host, port }) => `${host}:${port}`).join(',')
  for (const text of texts) {
    expect(text).toContain(` on redis://`)
    expect(text).toContain(hosts)
    withoutSecret(text)
  }
})

test('a note says what the lease is for; without one it is the program, and never its arguments', async () => {
  const script = 'echo ready; read -r _'
  const named = home.start(['run', '--note', 'nightly dump', 'noted', '--', 'sh', '-c', script])
  const plain = home.start(['run', 'plain', '--', '/bin/sh', '-c', script, '--password=hush'])
  await Promise.all([named.printed(/ready/), plain.printed(/ready/)])
  const [one, two] = await Promise.all(['noted', 'plain'].map((name) => home.run(['status', name])))
  expect(one!.stdout).toMatch(/\nnoted +\S+ \(nightly dump\) /)
  expect(two!.stdout).toMatch(/\nplain +\S+ \(sh\) /)
  const refused = await home.run(['run', '--no-wait', 'noted', '--', 'true'])
  expect(refused).toMatchObject({ code: EXIT.held, stderr: expect.stringContaining('(nightly dump)') as string })
  for (const holder of [named, plain]) {
    holder.type('\n')
    await holder.ended
  }
})

test('a lock that is only offered is neither free nor held', async () => {
  await using server = await startRedis()
  const env = { RINGFENCE_URL: server.url }
  await server.cli('SET', 'job', `offered:${'a'.repeat(32)}@heir`, 'PX', '60000')
  const said = "'job' is offered to heir, which has not taken it yet"
  expect(await home.run(['status', 'job'], { env })).toMatchObject({ code: EXIT.no, stdout: `${said}\n` })
  expect((await home.run(['status'], { env })).stdout).not.toContain('free')
  expect(await home.run(['run', '--no-wait', 'job', '--', 'true'], { env })).toMatchObject({
    code: EXIT.held,
    stderr: `ringfence: ${said}\n`,
  })
  expect(await home.run(['release', '--force', '--yes', 'job'], { env })).toMatchObject({
    code: EXIT.no,
    stderr: `ringfence: ${said}, so there is nothing to release\n`,
  })
})

test('elect says that the engine can not be reached, and that it answers again, once each', async () => {
  await using server = await startRedis()
  await server.kill()
  const env = { RINGFENCE_URL: server.url }
  const campaign = home.start(['elect', 'patient', '--', 'echo', 'leading'], { env })
  await until(() => campaign.stderr.includes('\n'), { what: 'it says so' })
  const machines = home.start(['elect', '--json', 'patient for machines', '--', 'echo', 'leading'], { env })
  await until(() => machines.stderr.includes('"event":"unreachable"'), { what: 'it says so to machines' })
  await server.restart()
  expect(await campaign.ended).toMatchObject({ code: 0, stdout: 'leading\n' })
  expect(campaign.stderr.replaceAll(server.url, 'URL')).toMatch(
    /^ringfence: campaigning goes on, but the engine URL cannot be used: .*ECONNREFUSED.*\nringfence: the engine URL answers again\n$/,
  )
  expect(await machines.ended).toMatchObject({ code: 0 })
  const events = machines.stderr.trim().split('\n')
  expect(events.map((line) => (JSON.parse(line) as { event: string }).event)).toEqual([
    'unreachable',
    'reachable',
    'leading',
    'stepped down',
  ])
})

test('release --force ends the lease of another, and never asks where nobody can answer', async () => {
  const holder = home.start(['run', '--ttl', '2s', 'freed', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await holder.printed(/ready/)
  expect(await home.run(['release', 'freed'])).toMatchObject({
    code: EXIT.usage,
    stderr: expect.stringMatching(
      /^ringfence: 'freed' is held by .*\n {2}next: ringfence release --force freed/,
    ) as string,
  })
  expect(await home.run(['release', '--force', 'freed'])).toMatchObject({
    code: EXIT.usage,
    stderr: expect.stringContaining("'freed' is held by") as string,
  })
  const { code, stdout } = await home.run(['release', '--force', '--yes', '--json', 'freed'])
  expect({ code, ...(JSON.parse(stdout) as object) }).toMatchObject({ code: 0, resource: 'freed', released: true })
  expect(await holder.ended).toMatchObject({ code: EXIT.lost })
  for (const args of [[], ['--force'], ['--force', '--yes']]) {
    expect(await home.run(['release', ...args, 'freed'])).toMatchObject({
      code: EXIT.no,
      stderr: expect.stringMatching(/^ringfence: 'freed' is free on file:\/.*\/locks\.db\n$/) as string,
    })
  }
})

test('doctor groups findings, and tells a score, and by its code whether the engine is fit', async () => {
  const fit = await home.run(['doctor', '--json'])
  const report = JSON.parse(fit.stdout) as { score: number; fit: boolean; findings: { id: string }[] }
  expect(report).toMatchObject({ fit: true })
  expect(report.findings.length).toBeGreaterThan(3)
  expect(fit.code).toBe(0)
  const env = { RINGFENCE_URL: quorumUrl }
  await servers.nodes[0]!.cli('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
  await servers.nodes[0]!.cli('CONFIG', 'SET', 'maxmemory', '50mb')
  const sick = await home.run(['doctor'], { env })
  expect(sick.stdout).not.toMatch(/^✓ ok 127/m)
  expect(sick.stdout).toMatch(/^✓ ok \d+ things are as they should be \(--verbose shows them\)$/m)
  expect(sick.stdout).toMatch(/✗ critical .*allkeys-lru/)
  expect(sick.stdout).toMatch(/redlock \(redis:\/\/:\*\*\*@127.*\): 0 of 100, \d+ critical/)
  expect(sick.stdout).toMatch(/\n {2}0 means: do not rely on it/)
  const all = await home.run(['doctor', '--verbose'], { env })
  expect(all.stdout).toMatch(/^✓ ok 3 servers \(127.*, 127.*, 127.*\): The server answers\.$/m)
  expect(all.stderr).toMatch(/^ringfence: engine: redis:\/\/:\*\*\*@127.*, from RINGFENCE_URL$/m)
  withoutSecret(all.stdout + all.stderr)
  expect(sick.code).toBe(EXIT.no)
  withoutSecret(sick.stdout + sick.stderr)
  await servers.nodes[0]!.cli('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
})

test('init stamps the nodes of a new quorum, and run then works on it', async () => {
  const env = { RINGFENCE_URL: quorumUrl }
  const first = await home.run(['init'], { env })
  expect(first.stdout.match(/new, stamped; votes from now on/g)).toHaveLength(3)
  expect(await home.run(['run', 'q', '--', 'sh', '-c', 'echo "$RINGFENCE_ENGINE"'], { env })).toMatchObject({
    code: 0,
    stdout: 'redlock:\n',
  })
})

test('doctor says that the engine is not fit while too few nodes may vote', async () => {
  await using own = await startRedisNodes(3)
  const env = { RINGFENCE_URL: `redis://${own.nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}` }
  await home.run(['init'], { env })
  const fit = /3 of 3 nodes may vote; 2 are needed/
  const all = await home.run(['doctor', '--verbose'], { env })
  expect(all).toMatchObject({ code: 0, stdout: expect.stringMatching(fit) as string })
  const answers = all.stdout.match(
    /^  127\.0\.0\.1:\d+: answers in \d+\.\d ms, its clock is \d+\.\d ms (ahead|behind)$/gm,
  )
  expect(answers).toHaveLength(3)
  const { servers: told } = JSON.parse((await home.run(['doctor', '--json'], { env })).stdout) as { servers: unknown[] }
  expect(told).toHaveLength(3)
  for (const node of own.nodes.slice(0, 2)) await node.restart({ empty: true })
  const sick = await home.run(['doctor'], { env })
  expect(sick.stdout).toMatch(
    /✗ critical 1 of 3 nodes may vote; 2 are needed; .+, .+ sit out for \d+ s from the next attempt on\./,
  )
  expect(sick.code).toBe(EXIT.no)
})

test('doctor --watch reports again when a node goes away, and ends with the last verdict when it is interrupted', async () => {
  await using own = await startRedisNodes(3)
  const env = { RINGFENCE_URL: `redis://${own.nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}` }
  const command = home.start(['doctor', '--watch', '--json'], { env })
  interface Report {
    readonly fit: boolean
    readonly findings: { readonly id: string; readonly severity: string }[]
  }
  const reports = (): Report[] =>
    command.stdout
      .split('\n')
      .slice(0, -1)
      .map((text) => JSON.parse(text) as Report)
  await until(() => reports().length === 1, { what: 'a first report', withinMs: 30_000 })
  await own.nodes[0]!.stop()
  await own.nodes[1]!.stop()
  const unfit = (): boolean =>
    reports().some(({ findings }) =>
      findings.some(({ id, severity }) => id === 'redis/quorum' && severity === 'critical'),
    )
  await until(unfit, { what: 'a report without a quorum', withinMs: 60_000 })
  expect(reports()[0]).toMatchObject({ fit: true })
  command.signal('SIGTERM')
  expect(await command.ended).toMatchObject({ code: EXIT.no })
})

test('doctor --watch notices a restart too short for a probe to miss the server, with the time of each report', async () => {
  await using own = await startRedisNodes(1)
  const [node] = own.nodes
  const command = home.start(['doctor', '--watch'], { env: { RINGFENCE_URL: `redis://127.0.0.1:${node!.port}` } })
  const times = (): number => (command.stdout.match(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/gm) ?? []).length
  await until(() => / of 100, /.test(command.stdout), { what: 'a first report', withinMs: 30_000 })
  expect(times()).toBe(1)
  const restarted = `! 127.0.0.1:${node!.port} was started again since the last report\n`
  expect(command.stdout).not.toContain(restarted)
  await node!.restart()
  await until(() => command.stdout.includes(restarted), { what: 'a report of the restart', withinMs: 30_000 })
  await until(() => command.stdout.trimEnd().split(' of 100, ').length - 1 === times(), { what: 'it is whole' })
  // The last word is of the server as it is now.
  const last = command.stdout.slice(command.stdout.indexOf(restarted))
  expect(last).not.toMatch(/✗ critical/)
  command.signal('SIGTERM')
  expect(await command.ended).toMatchObject({ code: 0 })
})

test('doctor --watch tells of nodes that were silent for a few seconds, also if they answer again before it has looked', async () => {
  await using own = await startRedisNodes(3)
  const env = { RINGFENCE_URL: `redis://${own.nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}` }
  const command = home.start(['doctor', '--watch'], { env })
  await until(() => / of 100, /.test(command.stdout), { what: 'a first report', withinMs: 30_000 })
  const frozen = own.nodes.slice(0, 2)
  for (const node of frozen) await node.freeze()
  const asked = async (): Promise<number> =>
    Number(/cmdstat_time:calls=(\d+)/.exec(await own.nodes[2]!.cli('INFO', 'commandstats'))?.[1])
  const before = await asked()
  // A probe asks a node for its time three times: the one after the one that was under way is over when there are more.
  await until(async () => (await asked()) > before + 6, { what: 'a probe has seen them silent', withinMs: 30_000 })
  for (const node of frozen) await node.thaw()
  const told = ({ port }: { readonly port: number }): boolean =>
    command.stdout.includes(`! 127.0.0.1:${port} went away and came back since the last report\n`) ||
    /✗ critical/.test(command.stdout)
  await until(() => frozen.every(told), { what: 'a report of the outage', withinMs: 30_000 })
  command.signal('SIGTERM')
  await command.ended
})

test('bench shows what the engine takes from here, and recommends a ttl', async () => {
  const env = { RINGFENCE_URL: quorumUrl }
  const { code, stdout } = await home.run(['bench', '--count', '20', '--for', '500ms', '--json'], { env })
  expect(code).toBe(0)
  const { acquireMs, releaseMs, drift, pause, recommendedTtlMs } = JSON.parse(stdout) as Record<
    string,
    Record<string, number>
  > & {
    recommendedTtlMs: number
  }
  expect(acquireMs!['p50']).toBeGreaterThan(0)
  expect(acquireMs!['p99']).toBeGreaterThanOrEqual(acquireMs!['p50']!)
  expect(releaseMs!['worst']).toBeGreaterThanOrEqual(releaseMs!['p99']!)
  // The same machine has one clock; what is off is within what the measurement says of itself.
  expect(Math.abs(drift!['part']!)).toBeLessThanOrEqual(drift!['errorPart']!)
  expect(recommendedTtlMs).toBeGreaterThanOrEqual(5000)
  expect(pause!['longestMs']).toBeGreaterThanOrEqual(pause!['longestGcMs']!)
  const known = await home.run(['bench', '--count', '10', '--for', '500ms', '--pause', '5m'], { env })
  expect(known.stdout).toMatch(
    /longest pause of this process: \d+ ms, of garbage collection \d+ ms; of your program 300000 ms\n/,
  )
  expect(known.stdout).toContain('recommended ttl: 1200 s at least (the longest pause is a quarter of it')
  const keys = await Promise.all(servers.nodes.map((node) => node.cli('KEYS', 'ringfence-bench:*')))
  expect(keys).toEqual(['', '', ''])
})

test('passwords come from the environment, a file or a config file, and are never printed', async () => {
  writeFileSync(home.file('url'), `${quorumUrl}\n`)
  mkdirSync(home.file('ringfence'), { recursive: true })
  writeFileSync(home.file('config.json'), JSON.stringify({ engineFile: 'url', ttl: '5s' }))
  const wrong = quorumUrl.replace(encodeURIComponent(PASSWORD), `${encodeURIComponent(PASSWORD)}x`)
  const runs = await Promise.all([
    home.run(['doctor', '--json', '--engine-file', home.file('url')]),
    home.run(['doctor', '--json'], { env: { RINGFENCE_URL_FILE: home.file('url') } }),
    home.run(['doctor', '--json', '--config', home.file('config.json')]),
    home.run(['run', 'x', '--', 'true'], { env: { RINGFENCE_URL: wrong } }),
    home.run(['run', '--json', 'x', '--', 'true'], { env: { RINGFENCE_URL: wrong } }),
    home.run(['run', 'x', '--', 'true'], { env: { RINGFENCE_URL: quorumUrl.replace('redis:', 'rediss') } }),
    home.run(['run', 'x', '--', 'true'], { env: { RINGFENCE_URL: `${quorumUrl}?nonsense=1` } }),
  ])
  for (const { stdout, stderr } of runs) withoutSecret(stdout + stderr)
  expect(runs.slice(0, 3).map(({ stdout }) => (JSON.parse(stdout) as { engine: string }).engine)).toEqual(
    Array.from({ length: 3 }, () => 'redlock'),
  )
  expect(runs.slice(3).map(({ code }) => code)).toEqual([EXIT.engine, EXIT.engine, EXIT.usage, EXIT.usage])
})

test('a password among the arguments is warned of, and no longer seen by ps while the command runs', async () => {
  const command = home.start(['run', '--engine', quorumUrl, 'seen', '--', 'sh', '-c', 'echo ready; read -r _'])
  await command.printed(/ready/)
  withoutSecret(readFileSync(`/proc/${command.pid}/cmdline`, 'utf8'))
  command.type('\n')
  const { code, stderr } = await command.ended
  expect(code).toBe(0)
  expect(stderr).toContain('a password among the arguments can be seen by `ps`')
  withoutSecret(stderr)
})

test('a config file in the current folder counts, and a wrong one is told', async () => {
  await using elsewhere = new Home()
  writeFileSync(
    elsewhere.file('ringfence.json'),
    JSON.stringify({ engine: `file:${elsewhere.file('own.db')}`, label: 'from-config' }),
  )
  expect(await elsewhere.run(['run', 'x', '--', 'sh', '-c', 'echo "$RINGFENCE_OWNER"'])).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/@from-config \(sh\)\n$/) as string,
  })
  expect(readFileSync(elsewhere.file('own.db')).length).toBeGreaterThan(0)
  writeFileSync(elsewhere.file('ringfence.json'), '{ "ttl": 5, password')
  expect(await elsewhere.run(['status'])).toMatchObject({
    code: EXIT.usage,
    stderr: expect.stringContaining('is not valid JSON') as string,
  })
  writeFileSync(elsewhere.file('ringfence.json'), '{ "tll": "5s" }')
  expect(await elsewhere.run(['status'])).toMatchObject({
    code: EXIT.usage,
    stderr:
      "ringfence: ringfence.json: unknown key 'tll'; did you mean ttl?\n" +
      '  next: the keys of the file are engine, engineFile, ttl, wait, grace, label, store, requireEngine\n',
  })
})

test('elect steps down when its command ends, with its code', async () => {
  expect(await home.run(['elect', 'short', '--', 'sh', '-c', 'exit 4'])).toMatchObject({ code: 4 })
  expect(await home.run(['status', 'short'])).toMatchObject({ code: EXIT.no })
})

test('a campaign that is interrupted leaves the queue', async () => {
  const leader = home.start(['elect', 'led', '--', 'sh', '-c', 'echo ready; exec sleep 600'])
  await leader.printed(/ready/)
  const other = home.start(['elect', 'led', '--', 'echo', 'never'])
  const waiting = async (): Promise<number | undefined> =>
    (JSON.parse((await home.run(['status', 'led', '--json'])).stdout) as { leases: { waiters: number }[] }).leases[0]
      ?.waiters
  await until(async () => (await waiting()) === 1, { what: 'it campaigns' })
  other.signal('SIGTERM')
  expect(await other.ended).toMatchObject({ code: 143, stdout: '' })
  expect(await waiting()).toBe(0)
})

test('held tells machines what the lease is for', async () => {
  const inside = [process.execPath, RINGFENCE, 'held', '--json']
  const { code, stdout } = await home.run(['run', '--note', 'nightly dump', 'asked', '--', ...inside])
  expect(code).toBe(0)
  expect(JSON.parse(stdout)).toMatchObject({ held: true, resources: ['asked'], note: 'nightly dump' })
})

test('held outside of a command says what is missing', async () => {
  expect(await home.run(['held'])).toMatchObject({ code: EXIT.usage })
  expect(await home.run(['held'], { env: { RINGFENCE_DEADLINE_FILE: home.file('gone') } })).toMatchObject({
    code: EXIT.no,
  })
})

test('the command gets its input, its outputs, and none of our own descriptors', async () => {
  const { stdout } = await home.run(['run', 'fds', '--', 'ls', '/proc/self/fd'])
  // 3 is the folder that ls reads. Node closes what it was given itself only up to 15.
  expect(stdout.split('\n').filter((fd) => fd !== '' && Number(fd) <= 15)).toEqual(['0', '1', '2', '3'])
})

test('a reader who goes away ends the output without a word, as with other commands', async () => {
  const piped = 'set -o pipefail; "$NODE" "$RINGFENCE" completion bash | true; echo "code $?"'
  const command = home.terminal(`bash -c '${piped}'`)
  expect((await command.ended).stdout).toMatch(/^code (0|141)\r\n$/)
})

import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { EXIT } from '../../../src/cli/exit-codes.ts'
import { hasNamespaces, unsharedAfter } from '../../engines/file/setup.ts'
import { Home, type Ended } from '../../../harness/command.ts'
import { startPostgres } from '../../../harness/servers/postgres.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { serverUser } from '../../../harness/temporary-folder.ts'
import { until } from '../../../harness/until.ts'

const home = new Home()
let server: RedisServer
beforeAll(async () => {
  server = await startRedis({ acl: ['shy on >secret ~* &* +@all -info'] })
})
afterAll(async () => {
  await home[Symbol.asyncDispose]()
  await server.stop()
})

test('an engine that does not answer: the advice has the option that named it, without a password', async () => {
  const engine = 'redis://:secret@127.0.0.1:1?requestTimeout=1s'
  const by = async (args: string[], env = {}): Promise<string> => (await home.run(['status', ...args], { env })).stderr
  const named = "`ringfence doctor --engine 'redis://:***@127.0.0.1:1?requestTimeout=1s'` looks closer"
  expect(await by(['-e', engine])).toContain(named)
  expect(await by([], { RINGFENCE_URL: engine })).toContain('`ringfence doctor` looks closer')
  writeFileSync(home.file('url'), engine)
  expect(await by(['--engine-file', 'url'])).toContain('`ringfence doctor --engine-file url` looks closer')
})

describe('control characters never reach the terminal', () => {
  const HOSTILE = 'x\u001b[31mEVIL\nline2\r\u009b2J\u202e\u007f'
  // oxlint-disable-next-line no-control-regex -- control characters are what it looks for
  const RAW = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/
  const ARGUMENT = 'a\u001b[31mred\u009b\u202e'

  beforeAll(async () => {
    await server.cli('SET', 'evil', HOSTILE, 'PX', '600000')
    await server.cli('SET', 'ringfence:fence:{evil}', '5')
  })

  test.each([
    ['status', ['status']],
    ['status of one', ['status', 'evil']],
    ['status for machines', ['status', '--json']],
    ['run that does not wait', ['run', '-n', 'evil', '--', 'true']],
    ['run that waits', ['run', '--wait', '100ms', 'evil', '--', 'true']],
    ['run for machines', ['run', '--json', '-n', 'evil', '--', 'true']],
    ['run --once', ['run', '--once', 'evil', '--', 'true']],
    ['release', ['release', '--force', 'evil']],
  ])('from an owner: %s', async (_what, args) => {
    const { stdout, stderr } = await home.run(args, { env: { RINGFENCE_URL: server.url } })
    expect(stdout + stderr).not.toMatch(RAW)
    expect(stdout + stderr).toContain(String.raw`x\u001b[31mEVIL\nline2\r\u009b2J\u202e\u007f`)
  })

  test('an owner does not break the table', async () => {
    const { stdout } = await home.run(['status'], { env: { RINGFENCE_URL: server.url } })
    expect(stdout.split('\n')).toHaveLength(3)
  })

  test.each([
    ['an unknown command', [ARGUMENT]],
    ['an unknown option', ['run', `--${ARGUMENT}`]],
    ['a time', ['run', '--ttl', ARGUMENT, 'x', '--', 'true']],
    ['a label', ['run', '--label', ARGUMENT, 'x', '--', 'true']],
    ['an engine', ['status', '--engine', ARGUMENT]],
    ['a host', ['status', '--engine', `redis://${ARGUMENT}:b`]],
    ['a config file', ['status', '--config', ARGUMENT]],
    ['a resource', ['status', ARGUMENT]],
    ['a command', ['run', 'x', '--', ARGUMENT]],
  ])('from the arguments: %s', async (_what, args) => {
    const { code, stdout, stderr } = await home.run(args)
    expect([EXIT.usage, EXIT.notFound]).toContain(code)
    expect(stdout + stderr).not.toMatch(RAW)
    expect(stderr).toContain(String.raw`\u001b[31mred`)
  })
})

describe('what this system lacks is told in a line and a next step, before anything is locked', () => {
  test('a folder of PATH that this user can not read is passed over', async () => {
    mkdirSync(home.file('closed/bin'), { recursive: true })
    chmodSync(home.file('closed'), 0o700)
    chmodSync(home.folder, 0o777)
    const PATH = `${home.file('closed/bin')}:${process.env['PATH'] ?? ''}`
    const options = { env: { PATH, XDG_STATE_HOME: home.file('of-another') }, user: serverUser() }
    expect(await home.run(['run', 'x', '--', 'echo', 'hi'], options)).toMatchObject({
      code: 0,
      stdout: 'hi\n',
      stderr: '',
    })
    const missing = await home.run(['run', 'x', '--', 'no-such-command'], options)
    expect(missing.stderr).toMatch(/^ringfence: no-such-command: command not found\n {2}next: /)
    expect(missing.code).toBe(EXIT.notFound)
  })

  test.each([
    ['is not there', {}],
    ['is not there, nor is that of this session', { XDG_RUNTIME_DIR: '/nonexistent/either' }],
  ])('a temporary folder that %s', async (_what, more) => {
    await using own = new Home()
    const env = { TMPDIR: '/nonexistent', ...more }
    for (const verb of ['run', 'elect']) {
      const { code, stderr } = await own.run([verb, 'c', '--', 'echo', 'hi'], { env })
      expect(stderr).toMatch(
        /^ringfence: the file with the deadline .*ENOENT.*\n {2}next: set TMPDIR to a folder .*\n$/,
      )
      expect(code).toBe(EXIT.failed)
    }
    expect(existsSync(own.file('ringfence'))).toBe(false)
  })

  test('a runtime folder of another user gives way to the temporary one', async () => {
    const env = { XDG_RUNTIME_DIR: '/nonexistent' }
    const { code, stdout } = await home.run(['run', 'c', '--', 'sh', '-c', 'echo "$RINGFENCE_DEADLINE_FILE"'], { env })
    expect(stdout).toContain(home.folder)
    expect(code).toBe(0)
    expect(readdirSync(home.folder).filter((name) => name.startsWith('ringfence-'))).toEqual([])
  })

  test.skipIf(!hasNamespaces)('a temporary folder on a full disk', async () => {
    const folder = home.file('small')
    mkdirSync(folder)
    chmodSync(home.folder, 0o777)
    const full = `mount -t tmpfs -o size=4k tmpfs '${folder}'; head -c 4096 /dev/zero > '${folder}/zero'`
    const { code, stderr } = await home.run(['run', 'c', '--', 'true'], {
      env: { TMPDIR: folder },
      under: unsharedAfter(full, '--mount'),
    })
    expect(stderr).toMatch(/ENOSPC.*\n {2}next: free some space there, or set TMPDIR to a folder on another disk\n$/)
    expect(code).toBe(EXIT.failed)
  })

  test('no home folder', async () => {
    const { code, stderr } = await home.run(['status'], { env: { HOME: '', XDG_STATE_HOME: '' } })
    expect(stderr).toMatch(
      /^ringfence: there is no folder for the file of locks: HOME is empty\n {2}next: set HOME or /,
    )
    expect(code).toBe(EXIT.usage)
  })
})

describe('a setting', () => {
  test.each([
    ['RINGFENCE_URL', ''],
    ['RINGFENCE_URL', ' '],
    ['RINGFENCE_URL_FILE', ''],
    ['RINGFENCE_CONFIG', ''],
  ])("%s that is set to nothing ('%s') is wrong usage, and no lock of this machine alone", async (name, value) => {
    expect(await home.run(['run', 'deploy', '--', 'echo', 'hi'], { env: { [name]: value } })).toMatchObject({
      code: EXIT.usage,
      stdout: '',
      stderr: `ringfence: ${name} is empty\n  next: give it a value, or unset it\n`,
    })
  })

  test.each(['RINGFENCE_DASHBOARD_TOKEN', 'RINGFENCE_DASHBOARD_WRITE_TOKEN'])(
    '%s that is set to nothing is wrong usage, and no page without a password',
    async (name) => {
      expect(await home.run(['dashboard', '--listen', '0'], { env: { [name]: '' } })).toMatchObject({
        code: EXIT.usage,
        stdout: '',
        stderr: `ringfence: ${name} is empty\n  next: give it a value, or unset it\n`,
      })
    },
  )

  test.each([
    ['--label', ['run', '--label', 'a'.repeat(300), 'x', '--', 'true'], {}],
    ['--origin', ['dashboard', '--listen', '0', '--origin', 'nonsense'], {}],
    ['--path', ['dashboard', '--listen', '0', '--path', 'a b'], {}],
    ['RINGFENCE_DASHBOARD_TOKEN', ['dashboard', '--listen', '0'], { RINGFENCE_DASHBOARD_TOKEN: 'short' }],
    ['RINGFENCE_DASHBOARD_WRITE_TOKEN', ['dashboard', '--listen', '0'], { RINGFENCE_DASHBOARD_WRITE_TOKEN: 'short' }],
  ])('%s that is wrong is named as it was given', async (name, args, env) => {
    const { code, stderr } = await home.run(args, { env })
    expect(stderr).toMatch(new RegExp(`^ringfence: ${name}: expected `))
    expect(code).toBe(EXIT.usage)
  })

  test('that another one outranks may be empty', async () => {
    const args = ['run', '--engine', `file:${home.file('own.db')}`, 'x', '--', 'echo', 'hi']
    expect(await home.run(args, { env: { RINGFENCE_URL: '' } })).toMatchObject({ code: 0, stdout: 'hi\n' })
  })

  test('of the ttl beyond what a quorum grants names the parameter of its URL', async () => {
    await using servers = await startRedisNodes(3)
    const hosts = servers.nodes.map(({ host, port }) => `${host}:${port}`).join(',')
    const env = { RINGFENCE_URL: `redis://${hosts}` }
    for (const args of [
      ['--ttl', '2m'],
      ['--once', '--at-least', '2m'],
    ]) {
      const { code, stderr } = await home.run(['run', ...args, 'x', '--', 'true'], { env })
      expect(stderr).toMatch(
        /^ringfence: --\S+: expected at most 60 s on this engine \(redlock\), got 2 min\n {2}next: add \?maxTtl=5m .*sit out for maxTtl and a second first/,
      )
      expect(code).toBe(EXIT.usage)
    }
  })
})

describe('what is wrong with the URL of an engine is said of where it came from', () => {
  const WRONG = 'redis://a,b'

  test('of a variable', async () => {
    expect((await run(WRONG)).stderr).toMatch(/^ringfence: RINGFENCE_URL: expected one Redis or three/)
  })

  test('of a file', async () => {
    writeFileSync(home.file('url'), `${WRONG}\n`)
    const expected = /^ringfence: url: expected one Redis or three/
    expect((await home.run(['status', '--engine-file', 'url'])).stderr).toMatch(expected)
    expect((await home.run(['status'], { env: { RINGFENCE_URL_FILE: 'url' } })).stderr).toMatch(expected)
    writeFileSync(home.file('url'), 'redis://:secret@a\nredis://:secret@b\n')
    const { code, stderr } = await home.run(['status', '--engine-file', 'url'])
    expect({ code, stderr }).toEqual({
      code: EXIT.usage,
      stderr: expect.stringMatching(
        /^ringfence: url: expected one line with the URL of an engine, got 2 lines\n {2}next: write the URL into it, /,
      ) as string,
    })
  })

  test('of the config file, as are its times', async () => {
    expect(await saidOfConfig({ engine: WRONG })).toMatch(/^ringfence: engine, in own.json: expected one Redis/)
    for (const name of ['ttl', 'wait', 'grace'])
      expect(await saidOfConfig({ [name]: '5' })).toMatch(
        `ringfence: ${name}, in own.json: expected a time with a unit`,
      )
  })

  test('of the option, and what the engine says of a parameter', async () => {
    expect((await home.run(['status', '-e', WRONG])).stderr).toMatch(/^ringfence: --engine: expected one Redis/)
    const { code, stderr } = await run('redis://127.0.0.1:1?requestTimeout=nonsense')
    expect(stderr).toMatch(/^ringfence: RINGFENCE_URL: requestTimeout: expected /)
    expect(code).toBe(EXIT.usage)
  })
})

async function saidOfConfig(config: object): Promise<string> {
  writeFileSync(home.file('own.json'), JSON.stringify(config))
  return (await home.run(['run', '--config', 'own.json', 'x', '--', 'true'])).stderr
}

test('the embedded engine is shown by the path of its file', async () => {
  const url = `file:${home.file('ringfence/locks.db')}`
  expect(JSON.parse((await home.run(['status', '--json'])).stdout)).toMatchObject({ engine: url })
  expect((await home.run(['doctor'])).stdout).toContain(`\nfile (${url}): `)
})

test.skipIf(process.getuid!() !== 0)('the file of another user: the reason once, then what to do', async () => {
  await using own = new Home()
  mkdirSync(own.file('of-root'), { mode: 0o755 })
  chmodSync(own.folder, 0o755)
  const { code, stderr } = await own.run(['run', '-e', `file:${own.file('of-root/new.db')}`, 'x', '--', 'true'], {
    user: serverUser(),
    env: { TMPDIR: '/tmp' },
  })
  expect(stderr.match(/EACCES/g)).toHaveLength(1)
  expect(stderr).toMatch(/or choose another path\n {2}next: name a file that this user may write to: --engine file:/)
  expect(code).toBe(EXIT.engine)
})

function run(RINGFENCE_URL: string): Promise<Ended> {
  return home.run(['run', 'x', '--', 'true'], { env: { RINGFENCE_URL } })
}

// They wait for servers of their own most of the time.
describe.concurrent('the next step fits what is wrong', () => {
  test('a wrong password, and none where one is needed', async () => {
    await using locked = await startRedis({ password: 'right' })
    for (const url of [`redis://:wrong@127.0.0.1:${locked.port}`, `redis://127.0.0.1:${locked.port}`]) {
      const { code, stderr } = await run(url)
      expect(stderr).toMatch(/(WRONGPASS|NOAUTH).*\n {2}next: check the user and the password in the URL\n$/)
      expect(code).toBe(EXIT.engine)
    }
  })

  test('a replica', async () => {
    await using replica = await startRedis({ args: ['--replicaof', '127.0.0.1', String(server.port)] })
    await until(async () => (await replica.cli('INFO', 'replication')).includes('master_link_status:up'), {
      what: 'it follows its master',
    })
    expect((await run(replica.url)).stderr).toMatch(
      /is a replica of 127\.0\.0\.1:\d+: locks need the master.*\n {2}next: this server is a replica.* name the master/,
    )
  })

  test('a full memory', async () => {
    await using full = await startRedis({ args: ['--maxmemory', '500kb'] })
    expect((await run(full.url)).stderr).toMatch(/OOM.*\n {2}next: the memory of the server is full: free some/)
  })

  test('a database that this Redis has not, and the lock is in no other', async () => {
    for (const scheme of ['redis', 'valkey']) {
      const { code, stderr } = await run(`${scheme}://127.0.0.1:${server.port}/99`)
      expect(stderr).toMatch(
        /^ringfence: the database 99 of 127\.0\.0\.1:\d+ cannot be used: .*out of range\n {2}next: name a /,
      )
      expect(code).toBe(EXIT.engine)
    }
    expect(await server.cli('EXISTS', 'ringfence:fence:{x}')).toMatch(/^0/)
    const inIt = await home.run(['run', 'x', '--', 'true'], { env: { RINGFENCE_URL: `${server.url}/3` } })
    expect(inIt).toMatchObject({ code: 0, stderr: '' })
    expect(await server.cli('EXISTS', 'ringfence:fence:{x}')).toMatch(/^0/)
    expect(await server.cli('-n', '3', 'EXISTS', 'ringfence:fence:{x}')).toMatch(/^1/)
  })

  test('a server that is silent, for those who wait too', async () => {
    await using silent = await startRedis()
    await silent.freeze()
    const run = (wait: string): Promise<Ended> =>
      home.run(['run', '--wait', wait, 'x', '--', 'true'], { env: { RINGFENCE_URL: silent.url } })
    for (const { code, stderr } of await Promise.all(['1s', '2s'].map(run))) {
      expect(stderr).toMatch(/no answer|cannot be used/)
      expect(code).toBe(EXIT.engine)
    }
  })

  test('a user whom PostgreSQL does not know', async () => {
    await using postgres = await startPostgres()
    const { stderr } = await run(postgres.url.replace(/\/\/[^@]*@/, '//nobody:wrong@'))
    expect(stderr).toMatch(/\n {2}next: check the user and the password in the URL\n$/)
  })

  test.skipIf(!hasNamespaces)('a full disk, in the doctor as well', async () => {
    const folder = home.file('disk')
    mkdirSync(folder)
    const options = {
      env: { RINGFENCE_URL: `file:${folder}/locks.db` },
      under: unsharedAfter(`mount -t tmpfs -o size=8k tmpfs '${folder}'`, '--mount'),
    }
    const { code, stderr } = await home.run(['run', '--wait', '1s', 'x', '--', 'true'], options)
    expect(stderr).toMatch(
      /the disk is full.*\n {2}next: free some space; leases that cannot be renewed end with their ttl\n$/,
    )
    expect(code).toBe(EXIT.engine)
    expect((await home.run(['doctor'], options)).stdout).toMatch(/✗ critical .*the disk is full.*; free some space\./)
  })

  test('a table that is missing: the statement can be copied, and the command is named', async () => {
    await using postgres = await startPostgres()
    const { stdout } = await home.run(['doctor'], { env: { RINGFENCE_URL: postgres.url } })
    expect(stdout).toMatch(
      /→ Create it with `ringfence init`.*by hand:\n {6}CREATE TABLE IF NOT EXISTS \S+ \(\n {6}\s+resource /,
    )
  })

  test('what init did stands in lines', async () => {
    await using postgres = await startPostgres()
    const { code, stdout } = await home.run(['init'], { env: { RINGFENCE_URL: postgres.url } })
    expect(stdout).toMatch(/CREATE TABLE IF NOT EXISTS \S+ \(\n\s+resource /)
    expect(stdout).not.toContain(String.raw`\n`)
    expect(code).toBe(0)
  })

  test('a user who may not ask for INFO hears nothing of it from the driver', async () => {
    const { code, stdout, stderr } = await home.run(['run', 'x', '--', 'echo', 'hi'], {
      env: { RINGFENCE_URL: `redis://shy:secret@127.0.0.1:${server.port}` },
    })
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'hi\n', stderr: '' })
  })
})

test.concurrent.each([
  ['run on one server', ['run', 'x', '--', 'true'], 'redis://127.0.0.1:1', 1],
  ['run on a quorum', ['run', 'x', '--', 'true'], 'redis://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3', 2],
  ['status', ['status'], 'redis://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3', 2],
  ['doctor of one server', ['doctor'], 'redis://127.0.0.1:1', 1],
  ['doctor of a quorum', ['doctor'], 'redis://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3', 3],
])('the reason is that of the connection, and not that a driver gave up: %s', async (_what, args, url, least) => {
  const { stdout, stderr } = await home.run(args, { env: { RINGFENCE_URL: url } })
  expect((stdout + stderr).match(/connect ECONNREFUSED 127\.0\.0\.1:[123]\b/g)?.length).toBeGreaterThanOrEqual(least)
  expect(stdout + stderr).not.toContain('max retries')
})

test.concurrent('the reason is that of the connection also where a pool gave up: MariaDB', async () => {
  const { code, stderr } = await home.run(['run', 'x', '--', 'true'], {
    env: { RINGFENCE_URL: 'mariadb://u@127.0.0.1:1/x' },
  })
  expect(stderr).toMatch(/cannot be used: mariadb: .*: connect ECONNREFUSED 127\.0\.0\.1:1\n/)
  expect(code).toBe(EXIT.engine)
})

test('a question in a summary ends with its own mark', async () => {
  expect((await home.run(['held', '--help'])).stdout).toContain('Inside a command of run or elect: ')
  for (const name of ['held', 'doctor']) expect((await home.run([name, '--help'])).stdout).toMatch(/held\?\n|locks\?\n/)
})

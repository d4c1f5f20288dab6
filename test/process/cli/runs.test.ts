import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Redis } from 'ioredis'
import { Home } from '../../../harness/command.ts'
import { startMariadb } from '../../../harness/servers/mariadb.ts'
import { startMongodb } from '../../../harness/servers/mongodb.ts'
import { startPostgres } from '../../../harness/servers/postgres.ts'
import { startRedis } from '../../../harness/servers/redis.ts'
import { EXIT } from '../../../src/cli/exit-codes.ts'

interface Server extends AsyncDisposable {
  readonly url: string
}

const STORES: Readonly<Record<string, () => Promise<Server>>> = {
  postgres: startPostgres,
  mariadb: startMariadb,
  mongodb: () => startMongodb({ replicaSet: false }),
  redis: startRedis,
}

const home = new Home()
afterAll(() => home[Symbol.asyncDispose]())

describe.each(Object.entries(STORES))('%s', (_name, start) => {
  let server: Server
  beforeAll(async () => {
    server = await start()
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  test('run --once records its runs, and runs shows them, to people and to machines', async () => {
    const env = { RINGFENCE_STORE: server.url }
    expect(await home.run(['runs', 'job'], { env })).toMatchObject({ code: 0, stdout: "no run of 'job' is recorded\n" })
    const once = ['run', '--once', '--label', 'alice', 'job', '--', 'sh', '-c']
    expect(await home.run([...once, 'exit 0'], { env })).toMatchObject({ code: 0, stderr: '' })
    expect(await home.run([...once, 'exit 3'], { env })).toMatchObject({ code: 3, stderr: '' })
    expect(await home.run([...once, 'kill -9 $$'], { env })).toMatchObject({ code: 137, stderr: '' })
    const { code, stdout } = await home.run(['runs', 'job', '--store', server.url])
    expect(code).toBe(0)
    const [head, ...lines] = stdout.trimEnd().split('\n')
    expect(head).toMatch(/^BEGAN +TOOK +OUTCOME +BY +TOKEN +MESSAGE$/)
    const began = String.raw`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +[\d.]+ m?s +`
    expect(lines[0]).toMatch(new RegExp(String.raw`${began}failed +alice \(sh\) +\d+ +ended by SIGKILL$`))
    expect(lines[1]).toMatch(new RegExp(String.raw`${began}failed +alice \(sh\) +\d+ +exit code 3$`))
    expect(lines[2]).toMatch(new RegExp(String.raw`${began}done +alice \(sh\) +\d+$`))
    expect(lines).toHaveLength(3)
    const json = await home.run(['runs', 'job', '--limit', '1', '--json'], { env })
    expect(JSON.parse(json.stdout)).toEqual({
      store: expect.stringContaining('://') as string,
      job: 'job',
      runs: [
        {
          atMs: expect.any(Number) as number,
          tookMs: expect.any(Number) as number,
          outcome: 'failed',
          message: 'ended by SIGKILL',
          token: expect.stringMatching(/^\d+$/) as string,
          owner: expect.stringMatching(/@alice \(sh\)$/) as string,
          engine: expect.stringMatching(/^file:/) as string,
        },
      ],
    })
  })
})

test('a run whose process was killed has only begun', async () => {
  await using server = await startRedis()
  const env = { RINGFENCE_STORE: server.url }
  const killed = home.start(['run', '--once', 'night', '--', 'sh', '-c', 'echo ready; sleep 600'], { env })
  await killed.printed(/ready/)
  const shown = async (): Promise<string> => (await home.run(['runs', 'night'], { env })).stdout
  expect(await shown()).toMatch(/ \? +began /)
  await killed.kill()
  expect(await shown()).toMatch(/ \? +began /)
})

test('a store that cannot be reached is complained of once, and changes neither the job nor the exit code', async () => {
  const store = 'redis://127.0.0.1:1'
  const ended = await home.run(['run', '--once', '--store', store, 'lonely', '--', 'sh', '-c', 'echo done; exit 4'])
  expect(ended).toMatchObject({ code: 4, stdout: 'done\n' })
  expect(ended.stderr).toMatch(
    /^ringfence: the run could not be recorded: the store redis:\/\/127\.0\.0\.1:1 cannot be used: .*ECONNREFUSED.*\n {2}next: is the server up, and the URL right\?\n$/,
  )
  const looked = await home.run(['runs', 'lonely', '--store', store])
  expect(looked).toMatchObject({ code: EXIT.engine, stdout: '' })
  expect(looked.stderr).toMatch(/the store redis:\/\/127\.0\.0\.1:1 cannot be used: [^]*next: is the server up/)
})

test('init of a store that needs nothing reaches it first', async () => {
  await using server = await startRedis()
  expect(await home.run(['init', '--store', server.url])).toMatchObject({
    code: 0,
    stdout: 'this store needs nothing\n',
  })
  const dead = await home.run(['init', '--store', 'redis://127.0.0.1:1'])
  expect(dead).toMatchObject({ code: EXIT.engine, stdout: '' })
  expect(dead.stderr).toMatch(/the store redis:\/\/127\.0\.0\.1:1 cannot be used: [^]*next: is the server up/)
})

test('a user of Redis who gets the rights of the hint can record runs and read them', async () => {
  await using server = await startRedis()
  const client = new Redis({ host: server.host, port: server.port })
  const user = ['ACL', 'SETUSER', 'app', 'reset', 'on', '>pw', '~ringfence:guard:*'] as const
  await client.call(...user)
  const env = { RINGFENCE_STORE: `redis://app:pw@${server.host}:${server.port}` }
  const denied = await home.run(['runs', 'job'], { env })
  expect(denied).toMatchObject({ code: EXIT.engine })
  const [, rights = ''] = /next: give this user ((?:\+\w+ )+)on the keys/.exec(denied.stderr) ?? []
  await client.call(...user, ...rights.trim().split(' '))
  expect(await home.run(['run', '--once', 'job', '--', 'true'], { env })).toMatchObject({ code: 0, stderr: '' })
  expect((await home.run(['runs', 'job'], { env })).stdout).toContain(' done ')
  client.disconnect()
})

/** What is said about wrong usage. */
async function wrong(args: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { code, stderr } = await home.run(args, { env })
  expect(code).toBe(EXIT.usage)
  return stderr
}

test('what is wrong is said of where it came from', async () => {
  expect(await wrong(['runs', 'job'])).toMatch(/expected a store: where are the runs recorded\?\n {2}next: --store URL/)
  expect(await wrong(['runs'])).toContain('expected the name of one job')
  expect(await wrong(['runs', 'job', '--limit', '0', '--store', 'redis://a'])).toContain('--limit: expected')
  expect(await wrong(['runs', 'job'], { RINGFENCE_STORE: 'etcd://a' })).toMatch(
    /RINGFENCE_STORE: expected a URL with one of postgres, .*redis.*, got etcd:\/\/a\n {2}next: a store is a database or a Redis server/,
  )
  expect(await wrong(['runs', 'job', '--store', 'redis://a,b,c'])).toContain('--store: expected one Redis, got 3')
  expect(await wrong(['runs', 'job', '--store', 'redis://a?tabel=x'])).toContain("--store: unknown parameter 'tabel'")
  expect(await wrong(['run', '--store', 'redis://a', 'x', '--', 'true'])).toContain('--store: only with --once')
  expect(await wrong(['run', '--once', 'x', '--', 'true'], { RINGFENCE_STORE: '' })).toContain(
    'RINGFENCE_STORE is empty',
  )
})

test('a password among the arguments is warned of, and shown nowhere', async () => {
  const { stderr, stdout } = await home.run(['runs', 'job', '--store', 'redis://:s3cret@127.0.0.1:1'])
  expect(stderr).toContain('put the URL into RINGFENCE_STORE')
  expect(`${stdout}${stderr}`).not.toContain('s3cret')
})

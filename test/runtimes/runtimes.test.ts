import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { program, server } from '../../harness/binaries.ts'
import { Home, type Command, type Ended } from '../../harness/command.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { conformance, type OptionalMethod } from '../../src/conformance/index.ts'
import { file } from '../../src/engines/file/index.ts'
import { memory } from '../../src/engines/memory.ts'
import { createLocks } from '../../src/locks.ts'

interface Outcome {
  /** The optional ones that it says the engine has. */
  readonly methods: readonly OptionalMethod[]
  readonly passed: readonly string[]
  readonly failed: Readonly<Record<string, string>>
}

interface Result {
  readonly version: string
  readonly engines: Readonly<Record<string, Outcome>>
  readonly sqlite: string
}

const page = readFileSync(new URL('../../docs/runtimes.md', import.meta.url), 'utf8')
const runner = fileURLToPath(new URL('runner.mjs', import.meta.url))
const fileSharer = fileURLToPath(new URL('file-sharer.mjs', import.meta.url))
const bunClient = fileURLToPath(new URL('bun-client.mjs', import.meta.url))

/** Each with the SQLite that the file engine finds there. Cases that are known to fail somewhere would be named here; there are none. */
const RUNTIMES = [
  ['node-20', '"$RUNTIME"', 'libsql'],
  ['node', '"$RUNTIME"', 'node:sqlite'],
  ['node-24', '"$RUNTIME"', 'node:sqlite'],
  ['node-26', '"$RUNTIME"', 'node:sqlite'],
  ['bun', '"$RUNTIME"', 'node:sqlite'],
  ['deno', '"$RUNTIME" run -A', 'node:sqlite'],
] as const

let redis: RedisServer

beforeAll(async () => {
  redis = await startRedis()
})

afterAll(() => redis.stop())

// Most of a run is waiting for leases to end: several at a time take little more than one.
describe.concurrent('what an engine must do holds on', () => {
  test.each(RUNTIMES)('%s', { timeout: 300_000 }, async (name, start, sqlite) => {
    await using home = new Home()
    const ended = await run(home, name, `${start} "${runner}" ${redis.port} "${home.folder}"`)
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    const result = JSON.parse(ended.stdout) as Result
    expect(result.version).toBe(server(name).version)
    expect(Object.keys(result.engines)).toEqual(['memory', 'redis', 'file'])
    for (const { methods, passed, failed } of Object.values(result.engines)) {
      expect(failed).toEqual({})
      const all = conformance({ engine: memory, methods, shared: true })
      expect(passed).toEqual(all.map(({ name }) => name))
    }
    expect(page).toMatch(
      new RegExp(`^\\| [^|]+ \\| ${result.version} \\|( [^|]+ \\|) all passed \\| all passed \\| all passed \\|`, 'm'),
    )
    expect(result.sqlite).toContain(`by ${sqlite}.`)
  })
})

describe.concurrent('a file is shared with this process, by the clock of the machine, on', () => {
  test.each(RUNTIMES)('%s', async (name, start) => {
    await using home = new Home()
    const locks = createLocks(file(home.file('locks.db')), { ttl: '60s', wait: 0 })
    const ours = await locks.acquire('of the test')
    const other = started(home, name, `${start} "${fileSharer}" "${home.file('locks.db')}"`)
    const saw = JSON.parse(await other.printed(/^(.*)\n/)) as {
      refused: unknown
      remainingMs: number
      resources: string[]
    }
    expect(saw).toMatchObject({ refused: null, resources: ['of the other'] })
    // Each process has run for another time than the other: a clock that begins with the process would show it here.
    expect(saw.remainingMs).toBeLessThanOrEqual(60_000)
    expect(saw.remainingMs).toBeGreaterThan(0)
    expect(await locks.tryAcquire('of the other')).toBeNull()
    const theirs = await locks.status('of the other')
    expect(theirs?.holders[0]?.remainingMs).toBeLessThanOrEqual(60_000)
    other.endInput()
    expect(await other.ended).toMatchObject({ code: 0, stderr: '' })
    await using next = await locks.acquire('of the other')
    expect(next.token).toBeGreaterThan(ours.token)
    await locks.close()
  })
})

describe.concurrent('the command runs on', () => {
  test.each(RUNTIMES.filter(([name]) => name.startsWith('node')))('%s', async (name, start) => {
    await using home = new Home()
    const line = `${start} "$RINGFENCE" run backup -- sh -c 'echo "$RINGFENCE_RESOURCE"; exit 7'`
    expect(await run(home, name, line)).toMatchObject({ code: 7, stdout: 'backup\n', stderr: '' })
  })
})

test("Bun's own client is refused, because it connects again without its subscriptions and does not say so", async () => {
  await using home = new Home()
  const { stdout } = await run(home, 'bun', `"$RUNTIME" "${bunClient}" ${redis.url}`)
  expect(JSON.parse(stdout)).toEqual({
    refusal: expect.stringMatching(/^TypeError: .*got Bun's own RedisClient.*use ioredis/),
    before: 1,
    killed: 1,
    onclose: 0,
    after: 0,
  })
})

function run(home: Home, name: string, line: string): Promise<Ended> {
  return started(home, name, line).ended
}

function started(home: Home, name: string, line: string): Command {
  // What they cache goes into the folder, and none of them asks whether there is a newer one.
  const env = { DENO_DIR: home.file('deno'), DENO_NO_UPDATE_CHECK: '1', NO_COLOR: '1' }
  return home.shell(line, { env: { ...env, RUNTIME: program(name).path } })
}

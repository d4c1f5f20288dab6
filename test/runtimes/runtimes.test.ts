import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { program, server } from '../../harness/binaries.ts'
import { Home, type Ended } from '../../harness/command.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'

interface Result {
  readonly version: string
  readonly engines: Readonly<
    Record<string, { readonly cases: number; readonly failed: Readonly<Record<string, string>> }>
  >
  readonly sqlite: string
}

const runner = fileURLToPath(new URL('runner.mjs', import.meta.url))
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
    expect(Object.fromEntries(Object.entries(result.engines).map(([engine, { failed }]) => [engine, failed]))).toEqual({
      memory: {},
      redis: {},
      file: {},
    })
    for (const { cases } of Object.values(result.engines)) expect(cases).toBeGreaterThan(70)
    expect(result.sqlite).toContain(`by ${sqlite}.`)
  })
})

describe.concurrent('the command runs on', () => {
  test.each(RUNTIMES.filter(([name]) => name.startsWith('node')))('%s', async (name, start) => {
    await using home = new Home()
    const line = `${start} "$RINGFENCE" run backup -- sh -c 'echo "$RINGFENCE_RESOURCE"; exit 7'`
    expect(await run(home, name, line)).toMatchObject({ code: 7, stdout: 'backup\n', stderr: '' })
  })
})

test("Bun's own client is refused, with the name of one that is taken", async () => {
  await using home = new Home()
  const { stdout } = await run(home, 'bun', `"$RUNTIME" "${bunClient}"`)
  expect(stdout).toMatch(/^TypeError: .*got Bun's own RedisClient.*use ioredis/)
})

function run(home: Home, name: string, line: string): Promise<Ended> {
  // What they cache goes into the folder, and none of them asks whether there is a newer one.
  const env = { DENO_DIR: home.file('deno'), DENO_NO_UPDATE_CHECK: '1', NO_COLOR: '1' }
  return home.shell(line, { env: { ...env, RUNTIME: program(name).path } }).ended
}

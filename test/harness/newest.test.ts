import { expect, test } from 'vitest'
import { server } from '../../harness/binaries.ts'
import { innerRun } from '../../harness/inner-run.ts'
import { servers } from '../../versions/list.mjs'
import { isOrdinary } from '../../versions/table.mjs'

/** The conformance cases that take seconds, on the newest version that Debian has. All versions, and all tests: docs/versions.md. */
const NEWEST = [
  ['redis-8', 'redis', '^redis, ioredis |^each right'],
  ['valkey-9', 'redis', '^redis, ioredis |^each right'],
  ['postgres-18', 'postgres', '^a Pool of pg '],
  ['etcd-3.5', 'etcd', '^etcd, one member '],
  ['zookeeper-3.9', 'zookeeper', '^zookeeper, one server '],
] as const

test.for(NEWEST)(
  'the conformance cases pass on %s',
  { timeout: 300_000 },
  async ([version, engine, names], { signal }) => {
    const args = `--project servers --maxWorkers=1 -t '${names}' test/engines/${engine}/conformance.test.ts test/engines/${engine}/rights`
    const env = { [`RINGFENCE_USE_${engine.toUpperCase()}`]: version }
    const { passed, failed } = await innerRun(`"${process.execPath}"`, args, env, signal)
    expect(failed).toEqual([])
    expect(passed).toBeGreaterThan(70)
    expect(server(version).version).toMatch(new RegExp(`^${version.split('-')[1]}\\b`))
  },
)

test('docs/versions.md names the versions that npm test runs on', () => {
  const usual = servers.filter(isOrdinary).map((row) => ({ ...row, runs: server(row.server).version }))
  expect(usual.length).toBeGreaterThan(6)
  expect(usual.filter(({ version, runs }) => version === undefined || !`${runs}.`.startsWith(`${version}.`))).toEqual(
    [],
  )
})

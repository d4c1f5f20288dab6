// npm run bench:engines -- every engine beside the others, in one run. By vitest, because the servers of the tests are
// TypeScript; it measures and prints, and claims nothing that could fail.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { fileURLToPath } from 'node:url'
import { test } from 'vitest'
import type { Engine } from '../src/engine.ts'
import { createLocks, type Locks } from '../src/locks.ts'
import type { ServerHandle } from '../harness/handle.ts'
import { startConsul } from '../harness/servers/consul.ts'
import { startEtcd } from '../harness/servers/etcd.ts'
import { startMariadb } from '../harness/servers/mariadb.ts'
import { startMongodb } from '../harness/servers/mongodb.ts'
import { startPostgres } from '../harness/servers/postgres.ts'
import { startRedis, startRedisNodes } from '../harness/servers/redis.ts'
import { startZookeeper } from '../harness/servers/zookeeper.ts'
import { createFolder, removeFolder } from '../harness/temporary-folder.ts'

interface Contestant {
  readonly name: string
  /** What the connector of this engine reads; the servers are one of each kind. */
  readonly connector: string
  readonly start: () => Promise<{ env: Record<string, string>; stop: () => Promise<unknown> }>
}

const TTL_MS = 30_000
const ROUNDS = 10
/** Long enough for many sections of every engine, short enough that a slow moment of the machine hits all of them. */
const SLICE_MS = 300
const HAND_OVERS = 15

const contestants: readonly Contestant[] = [
  {
    name: 'redis',
    connector: 'redis',
    start: async () => served(await startRedis(), byPort),
  },
  { name: 'redlock, 5 nodes', connector: 'redlock', start: startFiveNodes },
  { name: 'file', connector: 'file', start: startFile },
  { name: 'postgres', connector: 'postgres', start: async () => served(await startPostgres(), byUrl) },
  {
    name: 'postgres, advisory',
    connector: 'postgres-advisory',
    start: async () => served(await startPostgres(), byUrl),
  },
  { name: 'mariadb', connector: 'mariadb', start: async () => served(await startMariadb(), byPort) },
  { name: 'mongodb', connector: 'mongodb', start: async () => served(await startMongodb({ replicaSet: true }), byUrl) },
  { name: 'etcd', connector: 'etcd', start: async () => served(await startEtcd(), byUrls) },
  { name: 'consul', connector: 'consul', start: async () => served(await startConsul(), byUrls) },
  { name: 'zookeeper', connector: 'zookeeper', start: async () => served(await startZookeeper(), bySession) },
]

type Running = Awaited<ReturnType<Contestant['start']>>

function served<S extends ServerHandle>(server: S, env: (server: S) => Record<string, string>): Running {
  const named = Object.entries(env(server)).map(([name, value]) => [`RINGFENCE_${name}`, value])
  return { env: Object.fromEntries(named) as Record<string, string>, stop: () => server.stop() }
}

function byUrl({ url }: ServerHandle): Record<string, string> {
  return { URL: url }
}

function byUrls({ url }: ServerHandle): Record<string, string> {
  return { URLS: url }
}

function byPort({ port }: ServerHandle): Record<string, string> {
  return { PORT: String(port) }
}

function bySession({ host, port }: ServerHandle): Record<string, string> {
  return { SERVERS: `${host}:${port}`, MAX_TTL_MS: String(TTL_MS) }
}

async function startFiveNodes(): Promise<Running> {
  const { nodes, stop } = await startRedisNodes(5)
  return { env: { RINGFENCE_PORTS: nodes.map(({ port }) => port).join(',') }, stop }
}

async function startFile(): Promise<Running> {
  const folder = createFolder('bench')
  return { env: { RINGFENCE_FILE: `${folder}/locks.db` }, stop: async () => removeFolder(folder) }
}

interface Row {
  readonly engine: string
  readonly sectionMs: number
  readonly p99Ms: number
  readonly wakeUpMs: number
}

test('every engine beside the others', { timeout: 600_000 }, async () => {
  const open = []
  for (const { name, connector, start } of contestants) {
    const { env, stop } = await start()
    Object.assign(process.env, env)
    const { connect } = (await import(`../test/process/connect/${connector}.mjs`)) as { connect: () => Promise<Engine> }
    const locks = [
      createLocks(await connect(), { ttl: TTL_MS }),
      createLocks(await connect(), { ttl: TTL_MS }),
    ] as const
    // Connected at once, and not by the environment of the next one.
    for (const each of locks) await sections(each, 1)
    open.push({ name, locks, stop, sections: [] as number[], wakeUps: [] as number[] })
  }
  for (const { locks } of open) await sections(locks[0], 500)
  for (let round = 0; round < ROUNDS; round++) {
    const order = [...open.slice(round % open.length), ...open.slice(0, round % open.length)]
    for (const { locks, sections: taken } of order) taken.push(...(await sections(locks[0], SLICE_MS)))
    for (const { locks, wakeUps } of order) wakeUps.push(...(await handOvers(locks, HAND_OVERS)))
  }
  const rows = open.map(({ name, sections: taken, wakeUps }) => ({
    engine: name,
    sectionMs: quantile(taken, 0.5),
    p99Ms: quantile(taken, 0.99),
    wakeUpMs: quantile(wakeUps, 0.5),
  }))
  for (const { locks, stop } of open) {
    for (const each of locks) await each.close()
    await stop()
  }
  report(rows)
})

/** Uncontended acquire and release, one at a time. */
async function sections(locks: Locks, forMs: number): Promise<number[]> {
  const tookMs: number[] = []
  const until = performance.now() + forMs
  for (let i = 0; performance.now() < until; i++) {
    const began = performance.now()
    const lease = await locks.acquire(`section:${i % 16}`)
    await lease.release()
    tookMs.push(performance.now() - began)
  }
  return tookMs
}

/** Two clients of their own, as two processes would be: from the call of release to the grant of the one who waits. */
async function handOvers([one, two]: readonly [Locks, Locks], count: number): Promise<number[]> {
  const tookMs: number[] = []
  let held = await one.acquire('hand-over', { wait: '60s' })
  for (let i = 0; i < count; i++) {
    const next = (i % 2 === 0 ? two : one).acquire('hand-over', { wait: '60s' })
    // Long enough to be in line.
    await new Promise((resolve) => setTimeout(resolve, 60))
    const began = performance.now()
    void held.release()
    held = await next
    tookMs.push(performance.now() - began)
  }
  await held.release()
  return tookMs
}

function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(Math.floor(sorted.length * part), sorted.length - 1)] ?? Number.NaN
}

function report(rows: readonly Row[]): void {
  const machine = `Node ${process.version.slice(1)}, ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, load ${loadavg()[0]?.toFixed(1)}`
  const result = { date: new Date().toISOString().slice(0, 10), commit: commit(), machine, rows }
  writeFileSync(new URL('results/engines.json', import.meta.url), `${JSON.stringify(result, null, 2)}\n`)
  const publish = fileURLToPath(new URL('publish.mjs', import.meta.url))
  console.log(`\n${execFileSync(process.execPath, [publish], { encoding: 'utf8' })}`)
}

function commit(): string {
  return execFileSync('git', ['rev-parse', '--short=7', 'HEAD'], { cwd: import.meta.dirname, encoding: 'utf8' }).trim()
}

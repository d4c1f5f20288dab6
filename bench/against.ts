// RINGFENCE_AGAINST=/folder/dist npm run bench:against -- the engines of another build and of this one, side by side in one
// process, on the same servers. By vitest, as engines.ts; it measures and prints, and claims nothing that could fail.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { createPool as createMariadbPool } from 'mariadb'
import { MongoClient } from 'mongodb'
import { createPool as createMysql2Pool } from 'mysql2/promise'
import { Pool } from 'pg'
import postgresJs from 'postgres'
import { test } from 'vitest'
import type { Engine, LeaseRef } from '../src/engine.ts'
import type { Locks } from '../src/locks.ts'
import { startProxy } from '../harness/faults/proxy.ts'
import { startMariadb } from '../harness/servers/mariadb.ts'
import { startMongodb } from '../harness/servers/mongodb.ts'
import { startPostgres } from '../harness/servers/postgres.ts'

const TTL_MS = 600_000
const ROUNDS = 9
/** Each way. */
const AWAY_MS = 1
const MANY = 200

type Factory = (client: unknown, options: object) => Engine

interface Build {
  readonly name: 'before' | 'after'
  readonly createLocks: (engine: Engine, options: object) => Locks
  readonly factories: Record<'postgres' | 'mariadb' | 'mongodb', Factory>
}

interface Connected {
  readonly client: unknown
  end(): Promise<unknown>
}

interface Contestant {
  readonly name: string
  readonly factory: keyof Build['factories']
  readonly connect: (port: number) => Connected
  readonly start: () => Promise<AsyncDisposable & { readonly port: number }>
}

const mysqlAddress = (port: number) => ({ host: '127.0.0.1', port, user: 'root', database: 'ringfence' })

function mongoClient(port: number): Connected {
  const client = new MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`)
  return { client: client.db('app'), end: () => client.close() }
}

const contestants: readonly Contestant[] = [
  {
    name: 'postgres, pg',
    factory: 'postgres',
    start: startPostgres,
    connect(port) {
      const pool = new Pool({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' })
      // The server is stopped right after the pool.
      pool.on('error', () => undefined)
      return { client: pool, end: () => pool.end() }
    },
  },
  {
    name: 'postgres, postgres.js',
    factory: 'postgres',
    start: startPostgres,
    connect(port) {
      const sql = postgresJs({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' })
      return { client: sql, end: () => sql.end({ timeout: 1 }) }
    },
  },
  {
    name: 'mariadb, mariadb',
    factory: 'mariadb',
    start: startMariadb,
    connect(port) {
      const pool = createMariadbPool(mysqlAddress(port))
      return { client: pool, end: () => pool.end() }
    },
  },
  {
    name: 'mariadb, mysql2',
    factory: 'mariadb',
    start: startMariadb,
    connect(port) {
      const pool = createMysql2Pool(mysqlAddress(port))
      return { client: pool, end: () => pool.end() }
    },
  },
  { name: 'mongodb, one server', factory: 'mongodb', start: startMongodb, connect: mongoClient },
  {
    name: 'mongodb, replica set of one',
    factory: 'mongodb',
    start: () => startMongodb({ replicaSet: true }),
    connect: mongoClient,
  },
]

/** What one build has on the server of a contestant. */
interface Side {
  readonly near: readonly [Locks, Locks]
  readonly away: Locks
  readonly engine: Engine
  readonly leases: readonly LeaseRef[]
  readonly lost: LeaseRef
  close(): Promise<void>
}

interface Question {
  readonly name: string
  /** How often each build is asked in a round: in turn, so that a slow moment of the machine hits both. */
  readonly times: number
  readonly ask: (side: Side) => Promise<number>
}

const THREE = ['one', 'two', 'three']

const questions: readonly Question[] = [
  { name: 'acquire and release', times: 40, ask: ({ near }) => section(near[0], ['one']) },
  { name: 'the same, 2 ms away', times: 20, ask: ({ away }) => section(away, ['one']) },
  { name: 'three resources', times: 40, ask: ({ near }) => section(near[0], THREE) },
  { name: 'three resources, 2 ms away', times: 20, ask: ({ away }) => section(away, THREE) },
  { name: 'to the next process, after 0.1 s', times: 3, ask: ({ near }) => handOver(near, 100) },
  { name: 'to the next process, after 2 s', times: 1, ask: ({ near }) => handOver(near, 2000 + Math.random() * 500) },
  { name: 'renewal of 200', times: 10, ask: ({ engine, leases }) => timed(() => engine.extend(leases)) },
  {
    name: 'renewal of 200, one of them lost',
    times: 10,
    ask: ({ engine, leases, lost }) => timed(() => engine.extend([...leases.slice(1), lost])),
  },
  {
    name: 'renewal of 200 with ttls of their own',
    times: 10,
    ask: ({ engine, leases }) =>
      timed(() => engine.extend(leases.map((lease, index) => ({ ...lease, ttlMs: TTL_MS + index })))),
  },
]

interface Row {
  readonly engine: string
  readonly question: string
  readonly beforeMs: number
  readonly afterMs: number
  /** The median of the rounds. */
  readonly ratio: number
}

const against = process.env['RINGFENCE_AGAINST']

test.skipIf(against === undefined)('another build and this one', { timeout: 1_800_000 }, async () => {
  const builds = [
    await load('before', path.resolve(against!)),
    await load('after', fileURLToPath(new URL('../dist', import.meta.url))),
  ]
  const rows: Row[] = []
  for (const { name, factory, start, connect } of contestants) {
    await using server = await start()
    const { port } = server
    await using proxy = await startProxy(port)
    const [before, after] = await Promise.all(
      builds.map((build) => openSide(build, factory, connect, port, proxy.port)),
    )
    proxy.delay(AWAY_MS)
    for (const { name: question, times, ask } of questions) {
      const rounds: { before: number; after: number }[] = []
      for (let round = 0; round <= ROUNDS; round++) {
        const taken: { before: number[]; after: number[] } = { before: [], after: [] }
        for (let i = 0; i < times; i++) {
          if ((round + i) % 2 === 0) taken.before.push(await ask(before!))
          taken.after.push(await ask(after!))
          if ((round + i) % 2 === 1) taken.before.push(await ask(before!))
        }
        // The first is for warming up.
        if (round > 0) rounds.push({ before: median(taken.before), after: median(taken.after) })
      }
      const row = {
        engine: name,
        question,
        beforeMs: median(rounds.map((each) => each.before)),
        afterMs: median(rounds.map((each) => each.after)),
        ratio: median(rounds.map((each) => each.after / each.before)),
      }
      rows.push(row)
      console.log(
        `${name}: ${question}: ${row.beforeMs.toFixed(2)} -> ${row.afterMs.toFixed(2)} ms, ${row.ratio.toFixed(2)}`,
      )
    }
    for (const side of [before!, after!]) await side.close()
  }
  report(rows)
})

async function load(name: Build['name'], dist: string): Promise<Build> {
  const module = async (file: string): Promise<Record<string, never>> =>
    (await import(/* @vite-ignore */ `${dist}/${file}`)) as Record<string, never>
  const { createLocks } = await module('index.js')
  const { postgres } = await module('engines/postgres/index.js')
  const { mariadb } = await module('engines/mariadb/index.js')
  const { mongodb } = await module('engines/mongodb/index.js')
  return { name, createLocks: createLocks!, factories: { postgres: postgres!, mariadb: mariadb!, mongodb: mongodb! } }
}

async function openSide(
  { name, createLocks, factories }: Build,
  factory: Contestant['factory'],
  connect: Contestant['connect'],
  port: number,
  awayPort: number,
): Promise<Side> {
  const options = { [factory === 'mongodb' ? 'collection' : 'table']: `leases_${name}` }
  const clients = [connect(port), connect(port), connect(port), connect(awayPort)]
  const engines = clients.map(({ client }) => factories[factory](client, options))
  const [one, two, plain, away] = engines as [Engine, Engine, Engine, Engine]
  await plain.init!()
  const leases = await Promise.all(Array.from({ length: MANY }, (_, index) => grant(plain, `held ${index}`)))
  const lost = await grant(plain, 'lost')
  await plain.release(lost)
  const near = [createLocks(one, { ttl: TTL_MS }), createLocks(two, { ttl: TTL_MS })] as const
  const awayLocks = createLocks(away, { ttl: TTL_MS })
  return {
    near,
    away: awayLocks,
    engine: plain,
    leases,
    lost,
    async close() {
      for (const locks of [...near, awayLocks]) await locks.close()
      await plain.close()
      for (const client of clients) await client.end()
    },
  }
}

async function grant(engine: Engine, resource: string): Promise<LeaseRef> {
  const request = { resources: [resource], owner: `${resource}@bench`, ttlMs: TTL_MS }
  const outcome = await engine.acquire(request)
  if (outcome.kind === 'refused') throw new Error(`${resource} was refused`)
  return { ...request, token: outcome.token }
}

function section(locks: Locks, resources: string[]): Promise<number> {
  return timed(async () => (await locks.acquire(resources)).release())
}

/** From the call of release to the grant of a client that has waited this long. */
async function handOver([one, two]: readonly [Locks, Locks], afterMs: number): Promise<number> {
  const held = await one.acquire('hand-over', { wait: '60s' })
  const next = two.acquire('hand-over', { wait: '60s' })
  await new Promise((resolve) => setTimeout(resolve, afterMs))
  const began = performance.now()
  void held.release()
  const lease = await next
  const tookMs = performance.now() - began
  await lease.release()
  return tookMs
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now()
  await work()
  return performance.now() - began
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN
}

function report(rows: readonly Row[]): void {
  const machine = `Node ${process.version.slice(1)}, ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, load ${loadavg()[0]?.toFixed(1)}`
  const before = commitOf(path.resolve(against!, '..'))
  const result = { date: new Date().toISOString().slice(0, 10), before, machine, rounds: ROUNDS, rows }
  writeFileSync(new URL('results/against.json', import.meta.url), `${JSON.stringify(result, null, 2)}\n`)
  const publish = fileURLToPath(new URL('publish.mjs', import.meta.url))
  console.log(execFileSync(process.execPath, [publish], { encoding: 'utf8' }))
}

function commitOf(cwd: string): string {
  return execFileSync('git', ['rev-parse', '--short=7', 'HEAD'], { cwd, encoding: 'utf8' }).trim()
}

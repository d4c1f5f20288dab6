// This ringfence and an older one, side by side on the same servers, file or folder: `npm run test:versions -- ringfence@COMMIT`.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { startWorker, type Worker } from '../harness/child.ts'
import { startConsul } from '../harness/servers/consul.ts'
import { startEtcd } from '../harness/servers/etcd.ts'
import { startMariadb } from '../harness/servers/mariadb.ts'
import { startMongodb } from '../harness/servers/mongodb.ts'
import { startPostgres } from '../harness/servers/postgres.ts'
import { startRedis, startRedisNodes } from '../harness/servers/redis.ts'
import { startZookeeper } from '../harness/servers/zookeeper.ts'
import { createFolder, removeFolder } from '../harness/temporary-folder.ts'

const TREES = { old: process.env['RINGFENCE_OLD'] ?? '', new: path.join(import.meta.dirname, '..') }
type Name = keyof typeof TREES

/** Of each version, twice. */
const SECTIONS = 150

interface Started {
  /** For the connectors of `test/process/connect/`. */
  env: Record<string, string>
  stop: () => Promise<unknown>
}

type Start = () => Promise<Started>

const CASES: readonly { connector: string; start: Start; moves?: false }[] = [
  { connector: 'redis', start: of(startRedis, ({ port }) => ({ RINGFENCE_PORT: String(port) })) },
  {
    connector: 'redlock',
    start: of(
      () => startRedisNodes(5),
      ({ nodes }) => ({ RINGFENCE_PORTS: nodes.map(({ port }) => port).join(',') }),
    ),
  },
  { connector: 'postgres', start: of(startPostgres, ({ url }) => ({ RINGFENCE_URL: url })) },
  { connector: 'mariadb', start: of(startMariadb, ({ port }) => ({ RINGFENCE_PORT: String(port) })) },
  {
    connector: 'mongodb',
    start: of(
      () => startMongodb({ replicaSet: true }),
      ({ url }) => ({ RINGFENCE_URL: url }),
    ),
  },
  { connector: 'etcd', start: of(startEtcd, ({ url }) => ({ RINGFENCE_URLS: url })) },
  { connector: 'consul', start: of(startConsul, ({ url }) => ({ RINGFENCE_URLS: url })) },
  {
    connector: 'zookeeper',
    start: of(startZookeeper, ({ host, port }) => ({
      RINGFENCE_SERVERS: `${host}:${port}`,
      RINGFENCE_MAX_TTL_MS: '10000',
    })),
    moves: false,
  },
  {
    connector: 'file',
    start: async () => {
      const folder = createFolder('locks')
      return { env: { RINGFENCE_FILE: path.join(folder, 'locks.db') }, stop: async () => removeFolder(folder) }
    },
  },
]

function of<T extends { stop: () => Promise<unknown> }>(
  start: () => Promise<T>,
  env: (server: T) => Record<string, string>,
): Start {
  return async () => {
    const server = await start()
    return { env: env(server), stop: () => server.stop() }
  }
}

interface Message {
  readonly done?: string
  readonly token?: string
  readonly ticket?: unknown
  readonly released?: boolean
}

async function told(worker: Worker<Message>, deed: string, what: object = {}): Promise<Message> {
  worker.send({ deed, ...what })
  return done(worker, deed)
}

async function done(worker: Worker<Message>, deed: string): Promise<Message> {
  const message = await worker.next(undefined, { withinMs: 120_000, what: deed })
  expect(message).toMatchObject({ done: deed })
  return message
}

const rows: string[] = []
afterAll(() =>
  console.log(
    ['', '| engine | sections of each | changes of version | tickets |', '|---|---|---|---|', ...rows].join('\n'),
  ),
)

test.each(CASES)('$connector', { timeout: 300_000 }, async ({ connector, start, moves = true }) => {
  const { env, stop } = await start()
  const folder = createFolder('beside')
  const [inside, log] = ['inside', 'log'].map((name) => path.join(folder, name)) as [string, string]
  const worker = (name: Name): Worker<Message> =>
    startWorker<Message>(path.join(import.meta.dirname, 'beside-worker.mjs'), {
      env: {
        ...env,
        RINGFENCE_TREE: TREES[name],
        RINGFENCE_CONNECTOR: connector,
        RINGFENCE_NAME: name,
        RINGFENCE_INSIDE: inside,
        RINGFENCE_LOG: log,
      },
    })
  await using older = worker('old')
  await using newer = worker('new')
  const both = [older, newer]
  try {
    for (const each of both) await done(each, 'start')
    // The old one has set it up, and the new one comes beside it; then the new one sets it up too, and the old one goes on.
    for (const first of both) {
      await told(first, 'init')
      await Promise.all(both.map((each) => told(each, 'sections', { count: SECTIONS })))
    }

    const grants = readFileSync(log, 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.split(' ') as [Name, string])
    expect(grants).toHaveLength(4 * SECTIONS)
    const falls = grants.filter(([, token], at) => at > 0 && BigInt(token) <= BigInt(grants[at - 1]![1]))
    expect(falls).toEqual([])
    const changes = grants.filter(([name], at) => at > 0 && name !== grants[at - 1]![0]).length
    // On MariaDB waiters look every few milliseconds, and the other one may be next again and again.
    expect(changes).toBeGreaterThan(20)

    for (const [from, to] of moves ? [both, both.toReversed()] : []) {
      const { ticket, token } = await told(from!, 'handOff')
      const adopted = await told(to!, 'adopt', { ticket })
      expect(adopted.released).toBe(true)
      expect(BigInt(adopted.token!)).toBeGreaterThanOrEqual(BigInt(token!))
    }
    rows.push(`| ${connector} | ${2 * SECTIONS} | ${changes} | ${moves ? 'both ways' : 'leases do not move'} |`)
    for (const each of both) await told(each, 'close')
  } finally {
    await Promise.all(both.map((each) => each[Symbol.asyncDispose]()))
    await stop()
    removeFolder(folder)
  }
})

import { chmodSync, cpSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { Redis } from 'ioredis'
import { createPool } from 'mariadb'
import { MongoClient } from 'mongodb'
import * as zookeeperDriver from 'node-zookeeper-client'
import { Pool } from 'pg'
import { describe, expect, test } from 'vitest'
import type { ServerHandle } from '../../harness/handle.ts'
import { startConsul } from '../../harness/servers/consul.ts'
import { startEtcd } from '../../harness/servers/etcd.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { startZookeeper } from '../../harness/servers/zookeeper.ts'
import { createFolder, emptyFolder, giveToServer, removeFolder } from '../../harness/temporary-folder.ts'
import { until } from '../../harness/until.ts'
import { consul } from '../../src/engines/consul/index.ts'
import { etcd } from '../../src/engines/etcd/index.ts'
import { mariadb } from '../../src/engines/mariadb/index.ts'
import { mongodb } from '../../src/engines/mongodb/index.ts'
import { postgres } from '../../src/engines/postgres/index.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { zookeeper } from '../../src/engines/zookeeper/index.ts'
import { fileGuard } from '../../src/guards/index.ts'
import type { Engine } from '../../src/engine.ts'
import { createLocks, type Lease } from '../../src/index.ts'

/** What is put back later. */
interface Backup {
  restore(): Promise<void>
}

/** Of a server that is stopped for it, and the way back. */
async function copyOfFolder(server: ServerHandle, data: string): Promise<Backup> {
  const copy = path.join(path.dirname(data), 'copy')
  await server.restart({ prepare: () => cpSync(data, copy, { recursive: true }) })
  const putBack = (): void => {
    emptyFolder(data)
    cpSync(copy, data, { recursive: true })
    chmodSync(data, 0o700)
    for (const name of readdirSync(data, { recursive: true })) giveToServer(path.join(data, String(name)))
  }
  return { restore: () => server.restart({ prepare: putBack }) }
}

/** The data folder that it was started with. */
function folderOf({ pid }: ServerHandle): string {
  const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  const configuration = words.find((word) => word.endsWith('/zoo.cfg'))
  if (configuration !== undefined) return path.join(path.dirname(configuration), 'data')
  const option = /^(?:-D|--?(?:dbpath|data-?dir))(?:=(.*))?$/
  const at = words.findIndex((word) => option.test(word))
  return option.exec(words[at]!)![1] ?? words[at + 1]!
}

/** The RDB file of a Redis. */
async function copyOfRdb(server: RedisServer): Promise<Backup> {
  await server.cli('SAVE')
  server.copy()
  return { restore: () => server.restore() }
}

/** What `consul snapshot save` and `restore` ask for, of a server that runs. */
async function consulSnapshot({ url }: ServerHandle): Promise<Backup> {
  const saved = await fetch(`${url}/v1/snapshot`)
  expect(saved.status).toBe(200)
  const body = await saved.arrayBuffer()
  return {
    restore: async () => expect((await fetch(`${url}/v1/snapshot`, { method: 'PUT', body })).status).toBe(200),
  }
}

/** Opens an engine of a server, as a process that starts does. */
type Open = () => Promise<{ engine: Engine; end: () => Promise<void> }>

/** Clients that are started, take `count` leases one after the other, and are stopped. The last lease, and what a guard says to it. */
async function leases(open: Open, count: number, store: string): Promise<{ token: bigint; guarded: string }> {
  const { engine, end } = await open()
  const locks = createLocks(engine, { wait: '20s' })
  const guard = fileGuard(store)
  try {
    let last: { token: bigint; guarded: string } | undefined
    for (let index = 0; index < count; index++) {
      last = await locks.using('order', async (lease: Lease) => ({
        token: lease.token,
        guarded: await guard.enter(lease).then(
          () => 'entered',
          (error: { code: string }) => error.code,
        ),
      }))
    }
    return last!
  } finally {
    await guard.close()
    await locks.close()
    await end()
  }
}

interface Subject {
  name: string
  /** A server, how a backup of it is made, and whether tokens go on above those that were granted after the copy. */
  start: () => Promise<ServerHandle>
  open: (server: ServerHandle) => Open
  backup: (server: ServerHandle) => Promise<Backup>
  goesOn: boolean
}

const ofFolder = (server: ServerHandle): Promise<Backup> => copyOfFolder(server, folderOf(server))

const openConsul =
  ({ url }: ServerHandle): Open =>
  async () => ({ engine: consul(url, { requestTimeout: '10s' }), end: async () => undefined })

const SUBJECTS: Subject[] = [
  {
    name: 'PostgreSQL',
    start: () => startPostgres(),
    open: (server) => async () => {
      const pool = new Pool({ connectionString: server.url }).on('error', () => undefined)
      return { engine: postgres(pool), end: () => pool.end() }
    },
    backup: ofFolder,
    goesOn: true,
  },
  {
    name: 'MariaDB',
    start: () => startMariadb(),
    open: (server) => async () => {
      const pool = createPool(server.url.replace('mysql:', 'mariadb:'))
      return { engine: mariadb(pool), end: () => pool.end() }
    },
    backup: ofFolder,
    goesOn: true,
  },
  {
    name: 'MongoDB',
    start: () => startMongodb({ replicaSet: false }),
    open: (server) => async () => {
      const client = await MongoClient.connect(server.url)
      return { engine: mongodb(client.db('app')), end: () => client.close() }
    },
    backup: ofFolder,
    goesOn: false,
  },
  {
    name: 'etcd',
    start: () => startEtcd(),
    open: (server) => async () => ({ engine: etcd([server.url]), end: async () => undefined }),
    backup: ofFolder,
    goesOn: false,
  },
  {
    name: 'ZooKeeper',
    start: () => startZookeeper(),
    open: (server) => async () => ({
      engine: zookeeper(zookeeperDriver, `127.0.0.1:${server.port}`),
      end: async () => undefined,
    }),
    backup: ofFolder,
    goesOn: false,
  },
  { name: 'Consul', start: () => startConsul(), open: openConsul, backup: ofFolder, goesOn: false },
  // The snapshot gets a number of the log of the cluster that it is put into.
  {
    name: 'Consul, by a snapshot into the same cluster,',
    start: () => startConsul(),
    open: openConsul,
    backup: consulSnapshot,
    goesOn: true,
  },
  {
    name: 'one Redis, by an RDB file,',
    start: () => startRedis(),
    open: (server) => async () => {
      const client = new Redis(server.url)
      return { engine: redis(client), end: async () => client.disconnect() }
    },
    backup: (server) => copyOfRdb(server as RedisServer),
    goesOn: true,
  },
]

describe.concurrent(
  'a backup that is older than the last leases is put back, the clients are stopped',
  { timeout: 120_000 },
  () => {
    test.each(SUBJECTS)('$name: tokens go on above the old ones: $goesOn', async ({ start, open, backup, goesOn }) => {
      await using server = await start()
      const folder = createFolder('store')
      const store = path.join(folder, 'guard.db')
      const opened = open(server)
      try {
        await leases(opened, 1, store)
        const copy = await backup(server)
        const before = await leases(opened, 5, store)
        expect(before.guarded).toBe('entered')
        await copy.restore()
        const after = await leases(opened, 1, store)
        expect(after.token > before.token).toBe(goesOn)
        // A store that was not restored with it is safe all the same: it refuses.
        expect(after.guarded).toBe(goesOn ? 'entered' : 'STALE_TOKEN')
        // What the page says to do: let the numbers pass the old ones before the clients start.
        await until(async () => (await leases(opened, 5, store)).guarded === 'entered', {
          what: 'the store takes writes again',
          withinMs: 60_000,
        })
      } finally {
        removeFolder(folder)
      }
    })
  },
)

import { Redis } from 'ioredis'
import * as zookeeperDriver from 'node-zookeeper-client'
import path from 'node:path'
import { Pool } from 'pg'
import { describe, expect, test } from 'vitest'
import { program, programOf, server as installed } from '../../harness/binaries.ts'
import { startProxy } from '../../harness/faults/proxy.ts'
import { groupOf, type Group } from '../../harness/group.ts'
import type { ServerHandle } from '../../harness/handle.ts'
import { runTool, type Command } from '../../harness/process.ts'
import { startEtcdCluster } from '../../harness/servers/etcd.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedis, type RedisServer } from '../../harness/servers/redis.ts'
import { startZookeeperEnsemble, type ZookeeperServer } from '../../harness/servers/zookeeper.ts'
import { until } from '../../harness/until.ts'
import type { Engine } from '../../src/engine.ts'
import { etcd } from '../../src/engines/etcd/index.ts'
import { postgres } from '../../src/engines/postgres/index.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { zookeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { Traffic } from './traffic.ts'

interface Opened {
  engine: Engine
  end: () => unknown
}

/** A holder, and two clients that take turns meanwhile. */
class Fleet implements AsyncDisposable {
  readonly traffic = new Traffic()
  readonly #opened: Opened[] = []
  readonly #open: () => Opened
  readonly #locks: Locks[] = []

  constructor(open: () => Opened) {
    this.#open = open
    for (const locks of [this.locks(), this.locks()]) this.traffic.add(locks)
  }

  locks(): Locks {
    const opened = this.#open()
    this.#opened.push(opened)
    const locks = createLocks(opened.engine)
    this.#locks.push(locks)
    return locks
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.traffic[Symbol.asyncDispose]()
    for (const locks of this.#locks) await locks.close()
    for (const { end } of this.#opened) await end()
  }
}

interface InPlace {
  name: string
  start: () => Promise<Group<ServerHandle>>
  open: (nodes: readonly ServerHandle[]) => Opened
  /** The newer server, on the same data. */
  as: (command: Command) => Command
  versionOf: (node: ServerHandle) => Promise<string>
  newer: string
}

const nothing = (): undefined => undefined
const at = (port: number): string[] => ['-h', '127.0.0.1', '-p', String(port), '-U', 'postgres']
const ports = (nodes: readonly ServerHandle[]): string => nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')

const ofRedis = (older: 'redis' | 'valkey', newer: string): InPlace => ({
  name: `one ${older} that keeps what it writes`,
  start: async () => groupOf([await startRedis({ durable: true, valkey: older === 'valkey' })]),
  open: ([node]) => {
    const client = new Redis(node!.url).on('error', nothing)
    return { engine: redis(client), end: () => client.disconnect() }
  },
  as: (command) => ({ ...command, ...programOf(newer, `${older}-server`) }),
  versionOf: async (node) => {
    const info = await (node as RedisServer).cli('INFO', 'server')
    return new RegExp(`^${older}_version:(.*?)\\r?$`, 'm').exec(info)![1]!
  },
  newer,
})

const IN_PLACE: readonly InPlace[] = [
  ofRedis('redis', 'redis-8'),
  ofRedis('valkey', 'valkey-9'),
  {
    name: 'three members of etcd',
    start: () => startEtcdCluster(),
    open: (nodes) => ({ engine: etcd(nodes.map(({ url }) => url)), end: nothing }),
    as: (command) => ({ ...command, ...programOf('etcd-3.5', 'etcd') }),
    versionOf: async ({ url }) => ((await (await fetch(`${url}/version`)).json()) as { etcdserver: string }).etcdserver,
    newer: 'etcd-3.5',
  },
  {
    name: 'three servers of ZooKeeper',
    start: () => startZookeeperEnsemble(),
    open: (nodes) => ({ engine: zookeeper(zookeeperDriver, ports(nodes)), end: nothing }),
    as: (command) => {
      const [from, to] = ['zookeeper', 'zookeeper-3.9'].map((name) => installed(name).classPath!)
      return { ...command, args: command.args.map((word) => word.replace(from!, to!)) }
    },
    versionOf: async (node) =>
      /^Zookeeper version: ([\d.]+)/m.exec(await (node as ZookeeperServer).command('srvr'))![1]!,
    newer: 'zookeeper-3.9',
  },
]

describe.concurrent(
  'docs/operating/backup-and-upgrades.md: a newer server, with a lease held and clients that take turns',
  { timeout: 120_000 },
  () => {
    test.each(IN_PLACE)('$name become $newer on the same data', async ({ start, open, as, versionOf, newer }) => {
      await using servers = await start()
      await using fleet = new Fleet(() => open(servers.nodes))
      const kept = await fleet.locks().acquire('kept')
      await fleet.traffic.goesOn()
      for (const node of servers.nodes) {
        expect(await versionOf(node)).not.toBe(installed(newer).version)
        await node.restart({ as })
        await fleet.traffic.goesOn()
      }
      await until(() => kept.extend().then(() => true), { what: 'the lease is renewed on the newer server' })
      for (const node of servers.nodes) expect(await versionOf(node)).toBe(installed(newer).version)
      expect(await kept.release()).toBe(true)
      expect(fleet.traffic.broken).toEqual([])
    })

    test('PostgreSQL 15 becomes 18 by a dump that is made when no client reaches the old server any more', async () => {
      await using old = await startPostgres()
      await using fresh = await startPostgres({ version: 'postgres-18' })
      await using proxy = await startProxy(old.port)
      const connectionString = old.url.replace(String(old.port), String(proxy.port))
      await using fleet = new Fleet(() => {
        const pool = new Pool({ connectionString }).on('error', nothing)
        return { engine: postgres(pool), end: () => pool.end() }
      })
      const kept = await fleet.locks().acquire('kept')
      await fleet.traffic.goesOn()

      await proxy.refuse(true)
      proxy.reset()
      // Those of the old version: pg_dump of Debian's 18.6 writes an option of columns, pg_attver, that its own server refuses.
      const { path: psql, env } = program('psql')
      const dump = path.join(path.dirname(psql), 'pg_dump')
      const dumped = await runTool({ path: dump, args: [...at(old.port), 'postgres'], env })
      await runTool(
        { path: psql, args: [...at(fresh.port), '-X', '-q', '-v', 'ON_ERROR_STOP=1', 'postgres'], env },
        dumped,
      )
      proxy.aim(fresh.port)
      await proxy.refuse(false)

      await fleet.traffic.goesOn()
      await until(() => kept.extend().then(() => true), { what: 'the lease is renewed on the newer server' })
      expect(await fresh.sql('SHOW server_version_num')).toMatch(/^18/)
      expect(await kept.release()).toBe(true)
      expect(fleet.traffic.broken).toEqual([])
    })
  },
)

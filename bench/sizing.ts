// npm run bench:sizing -- what a lease costs each server: bytes, requests, connections. They are counts, so that a busy machine does
// not change them. By vitest, because the servers of the tests are TypeScript; it measures and prints, and claims nothing.
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createPool } from 'mariadb'
import { MongoClient } from 'mongodb'
import * as driver from 'node-zookeeper-client'
import { Client, Pool } from 'pg'
import { test } from 'vitest'
import { startProxy } from '../harness/faults/proxy.ts'
import type { ServerHandle } from '../harness/handle.ts'
import { startConsul } from '../harness/servers/consul.ts'
import { startEtcd } from '../harness/servers/etcd.ts'
import { startMariadb } from '../harness/servers/mariadb.ts'
import { startMongodb } from '../harness/servers/mongodb.ts'
import { startPostgres } from '../harness/servers/postgres.ts'
import { startRedis } from '../harness/servers/redis.ts'
import { startZookeeper } from '../harness/servers/zookeeper.ts'
import type { Engine } from '../src/engine.ts'
import { consul } from '../src/engines/consul/index.ts'
import { etcd } from '../src/engines/etcd/index.ts'
import { mariadb } from '../src/engines/mariadb/index.ts'
import { mongodb } from '../src/engines/mongodb/index.ts'
import { postgres } from '../src/engines/postgres/index.ts'
import { redis } from '../src/engines/redis/index.ts'
import { zookeeper } from '../src/engines/zookeeper/index.ts'
import { createLocks, type Lease, type Locks } from '../src/index.ts'

const LEASES = 5000
const AT_ONCE = 20
const HOUR_MS = 3_600_000
const SECTIONS = 500
/** Of leases that are renewed together. */
const RENEWED = 200

interface Subject {
  readonly server: ServerHandle
  /** An engine with connections of its own, as a process has. */
  readonly connect: () => Promise<Engine>
  /** What the leases take on the server, by its own count. */
  readonly bytes: () => Promise<number>
  /** Requests so far, of the engines that were connected. */
  readonly requests: () => number | Promise<number>
  readonly end: () => Promise<unknown>
}

const STARTS: Record<string, () => Promise<Subject>> = {
  redis: async () => {
    const server = await startRedis()
    const clients: Redis[] = []
    const info = async (section: string, pattern: RegExp): Promise<number> =>
      Number(pattern.exec(await server.cli('INFO', section))?.[1] ?? 0)
    return {
      server,
      connect: async () => redis(clients[clients.push(new Redis(server.url)) - 1]!),
      bytes: () => info('memory', /used_memory:(\d+)/),
      requests: () => info('commandstats', /cmdstat_evalsha:calls=(\d+)/),
      end: async () => clients.forEach((client) => client.disconnect()),
    }
  },
  postgres: async () => {
    const server = await startPostgres()
    const pools: Pool[] = []
    let queries = 0
    class Counted extends Client {
      override query(...args: unknown[]): never {
        queries++
        return (super.query as (...args: unknown[]) => never)(...args)
      }
    }
    return {
      server,
      connect: async () => {
        const pool = new Pool({ connectionString: server.url, Client: Counted }).on('error', () => undefined)
        pools.push(pool)
        return postgres(pool)
      },
      bytes: async () => Number(await server.sql("SELECT pg_total_relation_size('ringfence_leases')")),
      requests: () => queries,
      end: async () => {
        for (const pool of pools) await pool.end()
      },
    }
  },
  mariadb: async () => {
    const server = await startMariadb()
    const pools: ReturnType<typeof createPool>[] = []
    const proxy = await startProxy(server.port)
    const url = server.url.replace('mysql:', 'mariadb:').replace(String(server.port), String(proxy.port))
    return {
      server,
      connect: async () => mariadb(pools[pools.push(createPool(url)) - 1]!),
      bytes: async () => {
        await server.sql('ANALYZE TABLE ringfence_leases')
        const size = 'SELECT DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES WHERE TABLE_NAME ='
        return Number(await server.sql(`${size} 'ringfence_leases'`))
      },
      requests: () => proxy.roundTrips,
      end: async () => {
        for (const pool of pools) await pool.end()
        await proxy.close()
      },
    }
  },
  mongodb: async () => {
    const server = await startMongodb({ replicaSet: true })
    const clients: MongoClient[] = []
    let commands = 0
    return {
      server,
      connect: async () => {
        const client = await MongoClient.connect(server.url, { monitorCommands: true })
        client.on('commandStarted', () => commands++)
        clients.push(client)
        return mongodb(client.db('app'))
      },
      bytes: async () => {
        const { size, totalIndexSize } = await server.command({ collStats: 'ringfence' }, 'app')
        return Number(size) + Number(totalIndexSize)
      },
      requests: () => commands,
      end: () => Promise.all(clients.map((client) => client.close())),
    }
  },
  etcd: async () => {
    const server = await startEtcd()
    let requests = 0
    return {
      server,
      connect: async () => etcd([server.url], { fetch: (url, init) => (requests++, globalThis.fetch(url, init)) }),
      bytes: async () => Number((await server.call('maintenance/status', {}))['dbSizeInUse']),
      requests: () => requests,
      end: async () => undefined,
    }
  },
  consul: async () => {
    const server = await startConsul()
    let requests = 0
    return {
      server,
      connect: async () => consul(server.url, { fetch: (url, init) => (requests++, globalThis.fetch(url, init)) }),
      bytes: async () => 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))![1]),
      requests: () => requests,
      end: async () => undefined,
    }
  },
  zookeeper: async () => {
    const server = await startZookeeper()
    const mntr = async (name: string): Promise<number> =>
      Number(new RegExp(`${name}\t(\\d+)`).exec(await server.command('mntr'))![1])
    return {
      server,
      connect: async () => zookeeper(driver, `127.0.0.1:${server.port}`),
      bytes: () => mntr('zk_approximate_data_size'),
      requests: () => mntr('zk_packets_received'),
      end: async () => undefined,
    }
  },
}

/** Connections of this process to a server, by the kernel's own list. */
function connections({ port }: ServerHandle): number {
  const remote = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const lines = readFileSync('/proc/net/tcp', 'utf8').split('\n')
  return lines.filter((line) => {
    const [, , to, state] = line.trim().split(/\s+/)
    return to === remote && state === '01'
  }).length
}

const nameOf = (index: number): string => `order:${String(index).padStart(6, '0')}`

/** All of them, a few at a time. */
async function each<T>(count: number, step: (index: number) => Promise<T>): Promise<T[]> {
  const done: T[] = []
  for (let from = 0; from < count; from += AT_ONCE)
    done.push(
      ...(await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, at) => step(from + at)))),
    )
  return done
}

test.each(Object.entries(STARTS))('%s', { timeout: 600_000 }, async (name, start) => {
  const subject = await start()
  const { server, connect, bytes, requests, end } = subject
  const open: Locks[] = []
  const locks = async (): Promise<Locks> => {
    const made = createLocks(await connect(), { wait: '60s' })
    open.push(made)
    return made
  }
  try {
    const one = await locks()
    await (await one.acquire('first')).release()
    const idle = connections(server)

    const before = await requests()
    const own = (await requests()) - before
    const start = await requests()
    for (let index = 0; index < SECTIONS; index++) await (await one.acquire(nameOf(index % 16))).release()
    const perSection = ((await requests()) - start - own) / SECTIONS

    const held = await one.acquire('first')
    const alone = connections(server)
    const waiting = (await locks()).acquire('first')
    // Longer than any engine takes to stand in line.
    await sleep(2000)
    const ofWaiter = connections(server) - alone
    await held.release()
    await (await waiting).release()

    const renewed = await each(RENEWED, (index) => one.acquire(`renewed:${index}`))
    const ttlMs = renewed[0]!.remaining()
    const from = await requests()
    await sleep(ttlMs)
    const perTtl = (await requests()) - from - own
    await each(RENEWED, (index) => renewed[index]!.release())

    // Where the engine grants it, without renewals meanwhile.
    const longestMs = Math.min(HOUR_MS, one.engine.limits.maxTtlMs)
    const empty = await bytes()
    const leases: Lease[] = await each(LEASES, (index) =>
      one.acquire(nameOf(index), { ttl: longestMs, renew: longestMs < HOUR_MS }),
    )
    const full = await bytes()
    await each(LEASES, (index) => leases[index]!.release())
    const left = await bytes()
    console.log(
      JSON.stringify({
        name,
        idle,
        ofWaiter,
        perSection,
        perTtl,
        ttlMs: Math.round(ttlMs),
        heldBytes: Math.round((full - empty) / LEASES),
        leftBytes: Math.round((left - empty) / LEASES),
      }),
    )
  } finally {
    for (const each of open) await each.close()
    await end()
    await server.stop()
  }
})

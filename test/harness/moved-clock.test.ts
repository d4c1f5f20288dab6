import { createClient, type Stat } from 'node-zookeeper-client'
import { expect, test } from 'vitest'
import { canMoveClock, moveClock } from '../../harness/faults/vdso-clock.ts'
import type { ServerHandle } from '../../harness/handle.ts'
import { startConsul } from '../../harness/servers/consul.ts'
import { startEtcd } from '../../harness/servers/etcd.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startZookeeper } from '../../harness/servers/zookeeper.ts'

/** Far beyond what a busy machine takes to answer. */
const HOUR_S = 3600

interface Told {
  readonly server: ServerHandle
  /** What time it is, by the server. */
  readonly nowMs: () => Promise<number>
}

async function dateOf(url: string): Promise<number> {
  return Date.parse((await fetch(url)).headers.get('date')!)
}

/** Written in C, in Go and in Java. */
const SERVERS: Readonly<Record<string, () => Promise<Told>>> = {
  async mariadb() {
    const server = await startMariadb()
    return { server, nowMs: async () => Date.parse(`${(await server.sql('SELECT UTC_TIMESTAMP(3)')).trim()}Z`) }
  },
  async etcd() {
    const server = await startEtcd()
    return { server, nowMs: () => dateOf(`${server.url}/health`) }
  },
  async consul() {
    const server = await startConsul()
    return { server, nowMs: () => dateOf(`${server.url}/v1/agent/self`) }
  },
  async zookeeper() {
    const server = await startZookeeper()
    return { server, nowMs: () => createdMs(`127.0.0.1:${server.port}`) }
  },
}

/** When a new node was made. */
async function createdMs(address: string): Promise<number> {
  const client = createClient(address)
  try {
    const path = `/${performance.now()}`
    client.connect()
    await new Promise<void>((resolve, reject) => client.create(path, (error) => (error ? reject(error) : resolve())))
    const stat = await new Promise<Stat>((resolve, reject) =>
      client.exists(path, (error, found) => (error ? reject(error) : resolve(found))),
    )
    return Number(stat.ctime.readBigInt64BE())
  } finally {
    client.close()
  }
}

test.skipIf(!canMoveClock()).concurrent.each(Object.keys(SERVERS))(
  'the wall clock of a server that reads it without our library goes ahead, back and right: %s',
  async (name) => {
    const { server, nowMs } = await SERVERS[name]!()
    await using _ = server
    const hours = async (): Promise<number> => Math.round(((await nowMs()) - Date.now()) / (HOUR_S * 1000)) + 0
    const seen = [await hours()]
    for (const hour of [1, -1, 0]) {
      await moveClock(server, hour * HOUR_S)
      seen.push(await hours())
    }
    await moveClock(server, HOUR_S)
    await server.restart()
    seen.push(await hours())
    expect(seen).toEqual([0, 1, -1, 0, 0])
  },
)

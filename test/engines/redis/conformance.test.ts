import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { conformance } from '../../../src/conformance.ts'
import type { Engine } from '../../../src/engine.ts'
import { redis, redlock } from '../../../src/engines/redis/index.ts'
import { hasEngine } from '../../support/engines.ts'
import type { Group } from '../../support/group.ts'
import { startCluster } from '../../support/servers/redis-cluster.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../support/servers/redis.ts'
import { startSentinel, type SentinelSetup } from '../../support/servers/sentinel.ts'
import { CLUSTER, SENTINEL, SINGLE, type Connected } from './drivers-clients.ts'

let nodes: Group<RedisServer>
let valkey: RedisServer | undefined
let cluster: Group<RedisServer>
let sentinel: SentinelSetup

beforeAll(async () => {
  ;[nodes, valkey, cluster, sentinel] = await Promise.all([
    startRedisNodes(5),
    hasEngine('valkey') ? startRedis({ valkey: true }) : undefined,
    startCluster(),
    startSentinel(),
  ])
})

afterAll(() => Promise.all([nodes.stop(), valkey?.stop(), cluster.stop(), sentinel.stop()]))

interface Setup {
  readonly name: string
  readonly engine: (clients: readonly unknown[]) => Engine
  readonly servers: () => readonly RedisServer[]
  readonly connect: () => Promise<Connected>[]
}

const MIXED = ['ioredis', 'node-redis', 'iovalkey', 'GLIDE', 'ioredis']

const setups: Setup[] = [
  ...['ioredis', 'iovalkey', 'node-redis', 'node-redis pool', 'GLIDE'].map(oneServer),
  ...(hasEngine('valkey') ? ['iovalkey', 'node-redis', 'GLIDE'] : []).map(oneValkey),
  ...['ioredis', 'node-redis', 'GLIDE'].map(oneCluster),
  ...['ioredis', 'node-redis'].map(oneSentinelGroup),
  quorum(
    'ioredis',
    MIXED.map(() => 'ioredis'),
  ),
  quorum('a client of each kind', MIXED),
]

describe.each(setups)('$name', ({ engine, servers, connect }) => {
  // Two, as two processes would have them: what one connection would keep in order races on two.
  const processes: Connected[][] = []
  let asked = 0

  beforeAll(async () => {
    for (let i = 0; i < 2; i++) processes.push(await Promise.all(connect()))
  })

  afterAll(async () => {
    for (const connected of processes.flat()) await connected.close()
  })

  // The engine is given what a user has, and recognises it.
  const next = (): Engine => engine(processes[asked++ % 2]!.map(({ client }) => client.identity))

  const cases = conformance({ engine: next, shortTtlMs: 300 })

  test.each(cases.map((claim) => [claim.name, claim] as const))('%s', async (_name, claim) => {
    await expect(claim.run()).resolves.toBeUndefined()
  })

  test('nothing is left on the servers but counters: no lock, no subscription', async () => {
    for (const server of servers()) await expect.poll(() => leftovers(server), { timeout: 10_000 }).toEqual([])
    expect(asked).toBeGreaterThan(0)
  })
})

async function leftovers(server: RedisServer): Promise<string[]> {
  const lists = [
    await server.cli('KEYS', '*'),
    await server.cli('PUBSUB', 'CHANNELS', 'ringfence:freed:*'),
    await server.cli('PUBSUB', 'SHARDCHANNELS', '*'),
  ]
  const names = lists.flatMap((list) => list.split('\n'))
  return names.filter((name) => name !== '' && name !== 'ringfence:stamp' && !name.startsWith('ringfence:fence:'))
}

function oneServer(kind: string): Setup {
  return single(`redis, ${kind}`, kind, () => nodes.nodes[0]!)
}

function oneValkey(kind: string): Setup {
  return single(`redis, ${kind} to Valkey`, kind, () => valkey!)
}

function single(name: string, kind: string, server: () => RedisServer): Setup {
  return { name, engine: first, servers: () => [server()], connect: () => [SINGLE[kind]!(server())] }
}

function oneCluster(kind: string): Setup {
  const connect = (): Promise<Connected>[] => [CLUSTER[kind]!(cluster.nodes)]
  return { name: `redis, ${kind} to a Cluster`, engine: first, servers: () => cluster.nodes, connect }
}

function oneSentinelGroup(kind: string): Setup {
  const connect = (): Promise<Connected>[] => [SENTINEL[kind]!(sentinel.name, sentinel.sentinels)]
  return { name: `redis, ${kind} with sentinels`, engine: first, servers: () => sentinel.nodes, connect }
}

function quorum(name: string, kinds: readonly string[]): Setup {
  const connect = (): Promise<Connected>[] => kinds.map((kind, index) => SINGLE[kind]!(nodes.nodes[index]!))
  return { name: `redlock, ${name}`, engine: all, servers: () => nodes.nodes, connect }
}

/** What follows from the short ttl of some cases, a node timeout of 50 ms, is too little for a busy machine. */
const nodeTimeout = '1s'

function first([client]: readonly unknown[]): Engine {
  return redis(client, { nodeTimeout })
}

function all(clients: readonly unknown[]): Engine {
  return redlock(clients, { nodeTimeout })
}

import { afterAll, beforeAll } from 'vitest'
import { isAvailable } from '../../../harness/binaries.ts'
import type { Group } from '../../../harness/group.ts'
import { startRedis, startRedisNodes, type RedisServer } from '../../../harness/servers/redis.ts'
import { oneRedis, quorumOfRedis, testConformance, type Setup } from './conformance-setup.ts'
import { SINGLE } from './drivers-clients.ts'

let nodes: Group<RedisServer>
let valkey: RedisServer | undefined

beforeAll(async () => {
  ;[nodes, valkey] = await Promise.all([
    startRedisNodes(5),
    isAvailable('valkey') ? startRedis({ valkey: true }) : undefined,
  ])
})

afterAll(() => Promise.all([nodes.stop(), valkey?.stop()]))

const EACH_KIND = ['ioredis', 'node-redis', 'iovalkey', 'GLIDE', 'ioredis']

const setups: Setup[] = [
  ...['ioredis', 'iovalkey', 'node-redis', 'node-redis pool', 'GLIDE'].map(oneServer),
  ...(isAvailable('valkey') ? ['iovalkey', 'node-redis', 'GLIDE'] : []).map(oneValkey),
  quorum('redlock, ioredis', Array<string>(5).fill('ioredis')),
  quorum('redlock, a client of each kind', EACH_KIND),
]

testConformance(setups)

function oneServer(kind: string): Setup {
  return single(`redis, ${kind}`, kind, () => nodes.nodes[0]!)
}

function oneValkey(kind: string): Setup {
  return single(`redis, ${kind} to Valkey`, kind, () => valkey!)
}

function single(name: string, kind: string, server: () => RedisServer): Setup {
  return { name, ...oneRedis, servers: () => [server()], connect: () => [SINGLE[kind]!(server())] }
}

function quorum(name: string, kinds: readonly string[]): Setup {
  const connect: Setup['connect'] = () => kinds.map((kind, index) => SINGLE[kind]!(nodes.nodes[index]!))
  return { name, ...quorumOfRedis, servers: () => nodes.nodes, connect }
}

import { afterAll, beforeAll } from 'vitest'
import type { Group } from '../../../harness/group.ts'
import { startCluster } from '../../../harness/servers/redis-cluster.ts'
import type { RedisServer } from '../../../harness/servers/redis.ts'
import { startSentinel, type SentinelSetup } from '../../../harness/servers/sentinel.ts'
import { oneRedis, testConformance, type Setup } from './conformance-setup.ts'
import { CLUSTER, SENTINEL } from './drivers-clients.ts'

let cluster: Group<RedisServer>
let sentinel: SentinelSetup

beforeAll(async () => {
  ;[cluster, sentinel] = await Promise.all([startCluster(), startSentinel()])
})

afterAll(() => Promise.all([cluster.stop(), sentinel.stop()]))

const setups: Setup[] = [
  ...['ioredis', 'iovalkey', 'node-redis', 'GLIDE'].map(onCluster),
  ...['ioredis', 'iovalkey', 'node-redis'].map(withSentinels),
]

testConformance(setups)

function onCluster(kind: string): Setup {
  const connect: Setup['connect'] = () => [CLUSTER[kind]!(cluster.nodes)]
  return { name: `redis, ${kind} to a Cluster`, ...oneRedis, servers: () => cluster.nodes, connect }
}

function withSentinels(kind: string): Setup {
  const connect: Setup['connect'] = () => [SENTINEL[kind]!(sentinel.name, sentinel.sentinels)]
  return { name: `redis, ${kind} with sentinels`, ...oneRedis, servers: () => sentinel.nodes, connect }
}

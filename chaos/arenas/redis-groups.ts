import { startCluster } from '../../harness/servers/redis-cluster.ts'
import type { RedisServer } from '../../harness/servers/redis.ts'
import { startSentinel } from '../../harness/servers/sentinel.ts'
import { OFFER_MS, PLACE_MS } from '../../src/engines/redis/line-lua.ts'
import { clockOf, driverOf, stopTargets, type Arena, type Target } from '../arena.ts'
import { keysOn } from './redlock.ts'

const TTL_MS = 1500
const JUMP_MS = 3000
/** Sentinels need some seconds for an election, and eight more until they make a replica of a primary that was away. */
const FAILOVER_MS = 12_000
/** Nodes of a Cluster find out after twice their timeout of a second that one is back, and serve a while later. */
const REJOIN_MS = 8_000
const CLEAR_MS = TTL_MS + PLACE_MS + OFFER_MS

/** A primary, two replicas and three sentinels. A grant needs one replica, but which one is promoted is not ours to decide. */
export async function sentinelArena(): Promise<Arena> {
  const setup = await startSentinel({ durable: true })
  const targets = targetsOf('redis', setup.nodes)
  return {
    connector: 'sentinel',
    targets,
    exclusion: 'not promised',
    isGroup: true,
    majority: 2,
    ttlMs: TTL_MS,
    settleMs: FAILOVER_MS,
    mostGapMs: 30_000,
    clearMs: CLEAR_MS + FAILOVER_MS,
    leader: setup.primary,
    env: (client) => ({
      RINGFENCE_NAME: setup.name,
      RINGFENCE_PORTS: setup.sentinels.map(({ port }) => port).join(','),
      RINGFENCE_DRIVER: driverOf(client, ['ioredis', 'node-redis', 'iovalkey']),
    }),
    leftovers: async () => keysOn('the primary', await setup.primary()),
    [Symbol.asyncDispose]: () => setup.stop(),
  }
}

/** Three masters without replicas. Each serves a third of the accounts, so all of them must be well. */
export async function clusterArena(): Promise<Arena> {
  const { nodes } = await startCluster({ durable: true })
  const targets = targetsOf('redis', nodes).map((target) => ({
    ...target,
    ...clockOf(target.server, { jumpMs: JUMP_MS }),
  }))
  return {
    connector: 'cluster',
    targets,
    isGroup: true,
    majority: nodes.length,
    ttlMs: TTL_MS,
    settleMs: REJOIN_MS + JUMP_MS,
    mostGapMs: 30_000,
    clearMs: CLEAR_MS + JUMP_MS,
    env: (client) => ({
      RINGFENCE_PORTS: nodes.map(({ port }) => port).join(','),
      RINGFENCE_DRIVER: driverOf(client, ['ioredis', 'node-redis', 'iovalkey', 'glide']),
      // Accounts of one lease would have to share a hash slot.
      CHAOS_TOGETHER: 'never',
    }),
    leftovers: async () => (await Promise.all(nodes.map((node) => keysOn(`port ${node.port}`, node)))).flat(),
    [Symbol.asyncDispose]: () => stopTargets(targets),
  }
}

/** Clients find them by asking others, so there is no way between them that a proxy could cut. */
function targetsOf(name: string, nodes: readonly RedisServer[]): Target[] {
  return nodes.map((server, index) => ({
    name: `${name}-${index + 1}`,
    server,
    ways: [],
    memory: 'kept',
    sitOutMs: 0,
  }))
}

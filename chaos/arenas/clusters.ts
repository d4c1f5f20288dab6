import type { ServerHandle } from '../../harness/handle.ts'
import { isAvailable } from '../../harness/binaries.ts'
import { startConsulCluster } from '../../harness/servers/consul.ts'
import { startEtcdCluster } from '../../harness/servers/etcd.ts'
import { startMongodbReplicaSet } from '../../harness/servers/mongodb.ts'
import { startZookeeperEnsemble } from '../../harness/servers/zookeeper.ts'
import { clockOf, portsOf, startTarget, stopTargets, type Arena, type Target } from '../arena.ts'

const TTL_MS = 2000
const JUMP_MS = 3000
/** Dead sessions get their whole time again with every new leader, and the nemesis likes leaders. */
const MOST_GAP_MS = 30_000

export async function etcdArena(): Promise<Arena> {
  const cluster = await startEtcdCluster(3)
  const targets = await targetsOf('etcd', cluster.nodes)
  return {
    ...clusterOf(targets, cluster.leader),
    connector: 'etcd',
    // A new leader gives every lease its whole time again.
    settleMs: 2 * TTL_MS + 1000,
    clearMs: 2 * TTL_MS + 1000,
    env: (client) => ({ RINGFENCE_URLS: urls(targets, client) }),
    leftovers: async () => {
      const leader = await cluster.leader()
      const everything = Buffer.from([0]).toString('base64')
      const { kvs = [] } = await leader.call('kv/range', { key: everything, range_end: everything, keys_only: true })
      const { leases = [] } = await leader.call('lease/leases', {})
      const keys = (kvs as { key: string }[]).map(({ key }) => Buffer.from(key, 'base64').toString())
      return [...keys, ...(leases as { ID: string }[]).map(({ ID }) => `lease ${ID}`)]
    },
  }
}

export async function consulArena(): Promise<Arena> {
  const cluster = await startConsulCluster(3)
  const targets = await targetsOf('consul', cluster.nodes)
  return {
    ...clusterOf(targets, cluster.leader),
    connector: 'consul',
    // A session ends after up to twice its ttl, and then the lock-delay runs.
    settleMs: 3 * TTL_MS + 1000,
    clearMs: 3 * TTL_MS + 2000,
    env: (client) => ({ RINGFENCE_URLS: urls(targets, client) }),
    leftovers: async () => {
      const leader = await cluster.leader()
      const sessions = (await leader.call('GET', 'session/list')) as { ID: string }[]
      const keys = await leader.call('GET', 'kv/?keys').catch(noneThere)
      return [...(keys as string[]), ...sessions.map(({ ID }) => `session ${ID}`)]
    },
  }
}

export async function zookeeperArena(): Promise<Arena> {
  const ensemble = await startZookeeperEnsemble(3)
  const targets = await targetsOf('zookeeper', ensemble.nodes)
  return {
    ...clusterOf(targets, ensemble.leader),
    connector: 'zookeeper',
    settleMs: 2 * TTL_MS + 1000,
    clearMs: 4 * TTL_MS,
    env: (client) => ({
      RINGFENCE_SERVERS: portsOf(targets, client)
        .map((port) => `127.0.0.1:${port}`)
        .join(','),
      RINGFENCE_MAX_TTL_MS: String(TTL_MS),
    }),
    leftovers: async () => {
      const dump = await (await ensemble.leader()).command('dump')
      // Sessions of clients that are gone, and what they own.
      return [...dump.matchAll(/^\s+(\/.*)$/gm)].map(([, path]) => path!)
    },
  }
}

/** Its drivers find the members by themselves, so there is no way between them that could be cut. */
export async function mongodbArena(): Promise<Arena> {
  const clockShift = isAvailable('clock-shift')
  const set = await startMongodbReplicaSet({ clockShift })
  const targets = set.nodes.map((server, index): Target => {
    const clock = { shift: (ms: number) => server.shiftClock(ms), jumpMs: JUMP_MS }
    const always = { ways: [] as const, memory: 'kept' as const, sitOutMs: 0 }
    return { name: `mongodb-${index + 1}`, server, ...always, ...(clockShift ? { clock } : {}) }
  })
  return {
    ...clusterOf(targets, set.primary),
    connector: 'mongodb',
    // Its clients find the servers by themselves, so that nothing else comes between one server and another.
    first: ['two servers cut off from each other'],
    settleMs: 2 * TTL_MS + JUMP_MS + 1000,
    clearMs: 2 * TTL_MS + JUMP_MS + 1000,
    env: () => ({ RINGFENCE_URL: set.url }),
    leftovers: async () => {
      const primary = await set.primary()
      const filter = { $expr: { $gt: ['$until', '$$NOW'] } }
      const { cursor } = await primary.command({ find: 'ringfence', filter }, 'app')
      return (cursor as { firstBatch: { _id: unknown }[] }).firstBatch.map(({ _id }) => String(_id))
    },
  }
}

/** Consul answers 404 where there are no keys. */
function noneThere(error: Error): string[] {
  if (error.message.startsWith('consul answers 404')) return []
  throw error
}

type Common = Pick<
  Arena,
  'targets' | 'isGroup' | 'majority' | 'ttlMs' | 'mostGapMs' | 'leader' | typeof Symbol.asyncDispose
>

function clusterOf(targets: readonly Target[], leader: () => Promise<ServerHandle>): Required<Common> {
  return {
    targets,
    isGroup: true,
    majority: 2,
    ttlMs: TTL_MS,
    mostGapMs: MOST_GAP_MS,
    leader,
    [Symbol.asyncDispose]: () => stopTargets(targets),
  }
}

/** The leases of all of these go by a monotonic clock, so a jump of the wall clock may change nothing. */
const CLOCK = { jumpMs: JUMP_MS, isForLeases: false }

function targetsOf(name: string, nodes: readonly ServerHandle[]): Promise<Target[]> {
  return Promise.all(nodes.map((node, index) => startTarget(`${name}-${index + 1}`, node, clockOf(node, CLOCK))))
}

function urls(targets: readonly Target[], client: number): string {
  return portsOf(targets, client)
    .map((port) => `http://127.0.0.1:${port}`)
    .join(',')
}

import { flags } from '../flags.ts'
import { startGroup, type Group } from '../group.ts'
import { onFreePorts } from '../ports.ts'
import { until } from '../until.ts'
import { redisCli, startRedisOn, type RedisServer } from './redis.ts'

const requestTimeoutMs = 1_000

/** A Redis Cluster of three masters without replicas, all slots served. */
export async function startCluster(): Promise<Group<RedisServer>> {
  const group = await startGroup(Array.from({ length: 3 }, () => startClusterNode))
  try {
    const addresses = group.nodes.map(({ host, port }) => `${host}:${port}`)
    const [first] = group.nodes as [RedisServer, ...RedisServer[]]
    await redisCli(first.port, {}, ['--cluster', 'create', ...addresses, '--cluster-yes'])
    await until(() => allServe(group.nodes), { what: 'every node of the cluster serves' })
  } catch (error) {
    await group.stop()
    throw error
  }
  return group
}

async function startClusterNode(): Promise<RedisServer> {
  // The bus port is given, because the usual one (port + 10000) can lie beyond 65535.
  return onFreePorts(2, ([port = 0, busPort = 0]) =>
    startRedisOn(port, {
      args: flags({
        'cluster-enabled': 'yes',
        'cluster-port': busPort,
        'cluster-node-timeout': requestTimeoutMs,
        'cluster-announce-ip': '127.0.0.1',
      }),
    }),
  )
}

async function allServe(nodes: RedisServer[]): Promise<boolean> {
  const states = await Promise.all(nodes.map((node) => node.cli('CLUSTER', 'INFO')))
  return states.every((state) => state.includes('cluster_state:ok') && state.includes('cluster_known_nodes:3'))
}

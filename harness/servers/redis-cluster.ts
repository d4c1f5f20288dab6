import type { Certificates } from '../certificates.ts'
import { flags } from '../flags.ts'
import { startGroup, type Group } from '../group.ts'
import { onFreePorts } from '../ports.ts'
import { until } from '../until.ts'
import { redisCli, startRedisOn, tlsArgs, type RedisServer } from './redis.ts'

const requestTimeoutMs = 1_000

export interface ClusterOptions {
  password?: string
  /** Then each node listens with TLS, too. */
  certificates?: Certificates
  /** Each node keeps every write across a crash. */
  durable?: boolean
}

/** A Redis Cluster of three masters without replicas, all slots served. */
export async function startCluster(
  options: ClusterOptions = {},
): Promise<Group<RedisServer> & { readonly tlsPorts: readonly number[] }> {
  const tlsPorts: number[] = []
  const group = await startGroup(Array.from({ length: 3 }, () => () => startClusterNode(options, tlsPorts)))
  try {
    const addresses = group.nodes.map(({ host, port }) => `${host}:${port}`)
    const [first] = group.nodes as [RedisServer, ...RedisServer[]]
    await redisCli(first.port, options, ['--cluster', 'create', ...addresses, '--cluster-yes'])
    await until(() => allServe(group.nodes), { what: 'every node of the cluster serves' })
  } catch (error) {
    await group.stop()
    throw error
  }
  return { ...group, tlsPorts }
}

async function startClusterNode(options: ClusterOptions, tlsPorts: number[]): Promise<RedisServer> {
  const { password, certificates, durable = false } = options
  // The bus port is given, because the usual one (port + 10000) can lie beyond 65535.
  return onFreePorts(3, async ([port = 0, busPort = 0, tlsPort = 0]) => {
    const args = flags({
      'cluster-enabled': 'yes',
      'cluster-port': busPort,
      'cluster-node-timeout': requestTimeoutMs,
      'cluster-announce-ip': '127.0.0.1',
    })
    const tls = certificates === undefined ? [] : [...tlsArgs(tlsPort, certificates), '--tls-cluster', 'yes']
    const server = await startRedisOn(port, {
      args: [...args, ...tls],
      durable,
      ...(password === undefined ? {} : { password }),
    })
    if (certificates !== undefined) tlsPorts.push(tlsPort)
    return server
  })
}

async function allServe(nodes: RedisServer[]): Promise<boolean> {
  const states = await Promise.all(nodes.map((node) => node.cli('CLUSTER', 'INFO')))
  return states.every((state) => state.includes('cluster_state:ok') && state.includes('cluster_known_nodes:3'))
}

import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { program } from '../binaries.ts'
import type { Certificates } from '../certificates.ts'
import { groupOf, startGroup } from '../group.ts'
import { onFreePorts } from '../ports.ts'
import { Server } from '../process.ts'
import { createFolder, giveToServer } from '../temporary-folder.ts'
import { until } from '../until.ts'
import { isServing, redisCli, startRedis, tlsArgs, type RedisServer } from './redis.ts'

const masterName = 'ringfence'
// The quickest that is still calm on a busy machine of two cores: an election in about two seconds.
const downAfterMs = 500
const failoverTimeoutMs = 2_000
/** How often a sentinel tells the others what it knows. */
const usualMs = 2_000

// Replicas log in as a user of their own, so that replication can be cut without disturbing clients or sentinels.
const replicationUser = 'replica on >replica +psync +replconf +ping'
const replicationLogin = ['--masteruser', 'replica', '--masterauth', 'replica']

interface SentinelNode {
  readonly host: string
  readonly port: number
  readonly server: Server
  stop: () => Promise<void>
}

export interface SentinelSetup extends AsyncDisposable {
  /** The name by which clients ask the sentinels. */
  readonly name: string
  /** All three data servers, whatever their present role. The first one was the primary at the start. */
  readonly nodes: RedisServer[]
  readonly sentinels: { host: string; port: number }[]
  /** The server that the sentinels name. */
  primary: () => Promise<RedisServer>
  /** The others that run. */
  replicas: () => Promise<RedisServer[]>
  /** Crashes the present primary and returns it. */
  killPrimary: () => Promise<RedisServer>
  /** Waits until the sentinels agree on another primary than this one and it accepts writes. */
  newPrimary: (old: RedisServer, options?: { withinMs?: number }) => Promise<RedisServer>
  /**
   * From now on no write reaches a replica. Freezing the replicas would not do: what the primary has sent waits in
   * their sockets and is applied after all.
   */
  cutReplication: () => Promise<void>
  healReplication: () => Promise<void>
  stop: () => Promise<void>
}

/** One primary, two replicas and three sentinels with a quorum of two. `durable`: the servers keep every write across a crash. */
export async function startSentinel({ durable = false } = {}): Promise<SentinelSetup> {
  const options = { durable, acl: [replicationUser], args: replicationLogin }
  const data = await startGroup(Array.from({ length: 3 }, () => () => startRedis(options)))
  const started: { stop: () => Promise<void> }[] = [...data.nodes]
  try {
    const [first, ...others] = data.nodes as [RedisServer, ...RedisServer[]]
    await Promise.all(others.map((node) => node.cli('REPLICAOF', '127.0.0.1', String(first.port))))
    await until(() => hasReplicas(first, 2), { what: 'two replicas are in step' })
    const watchers = await startGroup(Array.from({ length: 3 }, () => () => startSentinelNode(first.port)))
    started.push(...watchers.nodes)
    await speakEvery(100, watchers.nodes)
    await until(() => allKnowEachOther(watchers.nodes), {
      what: 'the sentinels know the replicas and each other',
    })
    await speakEvery(usualMs, watchers.nodes)
    return sentinelSetup(data.nodes, watchers.nodes)
  } catch (error) {
    await groupOf(started).stop()
    throw error
  }
}

function sentinelSetup(nodes: RedisServer[], sentinels: SentinelNode[]): SentinelSetup {
  const primary = (): Promise<RedisServer> =>
    until(() => namedPrimary(nodes, sentinels), { what: 'the sentinels agree on a primary' })
  const { stop } = groupOf([...sentinels, ...nodes])
  return {
    name: masterName,
    nodes,
    sentinels: sentinels.map(({ host, port }) => ({ host, port })),
    primary,
    replicas: async () => {
      const first = await primary()
      return nodes.filter((node) => node !== first && node.isRunning)
    },
    killPrimary: async () => {
      const victim = await primary()
      await victim.kill()
      return victim
    },
    newPrimary: (old, { withinMs = 15_000 } = {}) =>
      until(
        async () => {
          const named = await namedPrimary(nodes, sentinels)
          return named !== undefined && named !== old && (await roleOf(named)) === 'master' ? named : undefined
        },
        { what: 'a new primary', withinMs, everyMs: 50 },
      ),
    cutReplication: async () => {
      const first = await primary()
      await first.cli('ACL', 'SETUSER', 'replica', 'off')
      await first.cli('CLIENT', 'KILL', 'TYPE', 'replica')
      await until(() => hasReplicas(first, 0), { what: 'no replica is connected' })
    },
    healReplication: async () => {
      const first = await primary()
      await first.cli('ACL', 'SETUSER', 'replica', 'on')
      await until(() => hasReplicas(first, 1), { what: 'a replica is in step again' })
    },
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

interface SentinelLogins {
  /** Of the master. */
  readonly password: string
  /** Of the sentinel. */
  readonly sentinelPassword: string
}

/** One primary and one sentinel, which speak TLS with each other and with clients, and have a password each. */
export async function startSecureSentinel(
  certificates: Certificates,
  { password, sentinelPassword }: SentinelLogins,
): Promise<AsyncDisposable & { readonly name: string; readonly tlsPort: number }> {
  return onFreePorts(2, async ([primaryPort = 0, tlsPort = 0]) => {
    const primary = await startRedis({ password, args: tlsArgs(primaryPort, certificates) })
    try {
      const sentinel = await startSentinelNode(primaryPort, 1, [
        ...lines(tlsArgs(tlsPort, certificates)),
        'tls-replication yes',
        `requirepass ${sentinelPassword}`,
        `sentinel auth-pass ${masterName} ${password}`,
      ])
      return { name: masterName, tlsPort, [Symbol.asyncDispose]: () => groupOf([sentinel, primary]).stop() }
    } catch (error) {
      await primary.stop()
      throw error
    }
  })
}

/** Arguments as a file of settings has them. */
function lines(args: readonly string[]): string[] {
  return args.flatMap((arg, index) => (arg.startsWith('--') ? [`${arg.slice(2)} ${args[index + 1]}`] : []))
}

async function startSentinelNode(
  primaryPort: number,
  quorum = 2,
  settings: readonly string[] = [],
): Promise<SentinelNode> {
  return onFreePorts(1, async ([port = 0]) => {
    const folder = createFolder('sentinel')
    const file = path.join(folder, 'sentinel.conf')
    // Sentinel rewrites this file.
    writeFileSync(
      file,
      `port ${port}
bind 127.0.0.1
dir ${folder}
sentinel monitor ${masterName} 127.0.0.1 ${primaryPort} ${quorum}
sentinel down-after-milliseconds ${masterName} ${downAfterMs}
sentinel failover-timeout ${masterName} ${failoverTimeoutMs}
${settings.join('\n')}
`,
    )
    giveToServer(file)
    const { path: redis, env } = program('redis-server')
    const server = await Server.start({
      name: `sentinel:${port}`,
      folder,
      command: { path: redis, args: [file, '--sentinel'], env },
      port,
      ready: () => isServing(port),
    })
    return { host: '127.0.0.1', port, server, stop: () => server.stop() }
  })
}

/** By what they say they hear of each other. It is also what they wait by in a failover, and there nothing is to be hurried. */
async function speakEvery(ms: number, sentinels: SentinelNode[]): Promise<void> {
  await Promise.all(
    sentinels.map(({ port }) => redisCli(port, {}, ['SENTINEL', 'DEBUG', 'publish-period', String(ms)])),
  )
}

async function allKnowEachOther(sentinels: SentinelNode[]): Promise<boolean> {
  const answers = await Promise.all(sentinels.map(({ port }) => redisCli(port, {}, ['SENTINEL', 'MASTER', masterName])))
  return answers.every(
    (answer) =>
      /^num-slaves\n2$/m.test(answer) && /^num-other-sentinels\n2$/m.test(answer) && /^flags\nmaster$/m.test(answer),
  )
}

/** The server that at least two sentinels name. */
async function namedPrimary(nodes: RedisServer[], sentinels: SentinelNode[]): Promise<RedisServer | undefined> {
  const votes = await Promise.allSettled(
    sentinels.map(({ port }) => redisCli(port, {}, ['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', masterName])),
  )
  return nodes.find((node) => {
    const inFavour = votes.filter((vote) => vote.status === 'fulfilled' && vote.value.endsWith(`\n${node.port}`))
    return inFavour.length >= 2
  })
}

async function hasReplicas(primary: RedisServer, count: number): Promise<boolean> {
  const info = await primary.cli('INFO', 'replication')
  const online = info.match(/^slave\d+:.*state=online/gm) ?? []
  return count === 0 ? /^connected_slaves:0\r?$/m.test(info) : online.length >= count
}

async function roleOf(node: RedisServer): Promise<string | undefined> {
  return (await node.cli('ROLE')).split('\n')[0]
}

import type { Done, RedisClient, RedisMaster, Send } from '../client.ts'
import { isKeyless, togetherOnCluster } from './cluster.ts'
import { wordsOf } from '../pieces.ts'
import { quietSender } from './node-redis-queue.ts'
import { plain } from './reply.ts'
import { slotOf } from '../slot.ts'

/** What is used of a node-redis client (`createClient`). */
export interface NodeRedisClient {
  readonly isOpen: boolean
  readonly isReady: boolean
  sendCommand(args: readonly string[], options?: object): Promise<unknown>
  withCommandOptions(options: object): { sendCommand(args: readonly string[]): Promise<unknown> }
  duplicate(overrides?: object): NodeRedisCopy
}

/** What is used of a node-redis pool (`createClientPool`). */
export interface NodeRedisPool {
  readonly isOpen: boolean
  readonly isClosing: boolean
  execute<T>(task: (client: NodeRedisClient) => T): Promise<Awaited<T>>
}

/** What is used of a node-redis cluster (`createCluster`). */
export interface NodeRedisCluster {
  readonly isOpen: boolean
  readonly masters: readonly NodeRedisNode[]
  readonly slots: readonly { readonly master: NodeRedisNode }[]
  nodeClient(node: NodeRedisNode): NodeRedisClient | Promise<NodeRedisClient>
  sendCommand(
    firstKey: string | undefined,
    isReadonly: boolean | undefined,
    args: readonly string[],
    options?: object,
  ): Promise<unknown>
}

export interface NodeRedisNode {
  readonly address: string
}

/** What is used of a node-redis sentinel (`createSentinel`). */
export interface NodeRedisSentinel {
  readonly isOpen: boolean
  sendCommand(isReadonly: boolean | undefined, args: readonly string[], options?: object): Promise<unknown>
  multi(): NodeRedisSentinelMulti
  duplicate(overrides?: object): NodeRedisCopy
  getMasterNode(): { readonly host: string; readonly port: number } | undefined
}

interface NodeRedisSentinelMulti {
  addCommand(isReadonly: boolean | undefined, args: readonly string[]): unknown
  execAsPipeline(): Promise<readonly unknown[]>
}

/** What is used of the copy of a client or sentinel that becomes a subscriber. */
export interface NodeRedisCopy {
  sendCommand(args: readonly string[], options?: object): Promise<unknown>
  connect(): Promise<unknown>
  destroy(): unknown
  subscribe(channel: string, listener: ChannelListener): Promise<unknown>
  unsubscribe(channel: string, listener: ChannelListener): Promise<unknown>
  sSubscribe(channel: string, listener: ChannelListener): Promise<unknown>
  sUnsubscribe(channel: string, listener: ChannelListener): Promise<unknown>
  on(event: string, listener: (first: never) => void): unknown
}

type ChannelListener = (message: string, channel: string) => void

/** The user's type mapping, abort signal and priority are for the user's commands. */
const OURS = { typeMapping: {}, abortSignal: undefined, asap: undefined }

/**
 * node-redis 6 arms an AbortSignal for its timeout (5 s by default) with every command, which halves what one connection
 * can do, and which does not end a command that was sent. It is left out while the connection is up. While it is down the
 * timeout stays: it keeps a queued command from running late.
 */
export const OURS_ONLINE = { ...OURS, timeout: undefined }

/** Options set beforehand are cheaper than options given with every command. */
export function clientSender(client: NodeRedisClient): Send {
  const online = client.withCommandOptions(OURS_ONLINE)
  const offline = client.withCommandOptions(OURS)
  return async (command) => plain(await (client.isReady ? online : offline).sendCommand(command))
}

/** Without the promises of an async function, and where that can be done without any: for what every lease needs. */
export function clientSenderInPieces(client: NodeRedisClient): NonNullable<RedisClient['send']> {
  const online = client.withCommandOptions(OURS_ONLINE)
  const offline = client.withCommandOptions(OURS)
  const send = quietSender(client, online) ?? ((words) => online.sendCommand(words))
  return (command, settle) => {
    const words = wordsOf(command)
    const heard: Done = (error, reply) => (error === undefined ? settle(undefined, plain(reply)) : settle(error))
    const answer = client.isReady ? send(words, heard) : offline.sendCommand(words)
    answer?.then((reply) => heard(undefined, reply), heard)
  }
}

export async function sendOne(client: NodeRedisClient, command: readonly string[]): Promise<unknown> {
  return plain(await client.sendCommand(command, client.isReady ? OURS_ONLINE : OURS))
}

/** Queued in one go, therefore written back to back: node-redis writes its queue in order. */
export function sendTogether(
  client: NodeRedisClient,
  commands: readonly (readonly string[])[],
): Promise<readonly unknown[]> {
  return Promise.all(commands.map((command) => sendOne(client, command)))
}

export function sentinelSender(sentinel: NodeRedisSentinel): Send {
  return async (command) => plain(await sentinel.sendCommand(false, command, OURS_ONLINE))
}

/** A pipeline goes to one connection. `use` would, too, but waits forever where other callers keep the only connection busy. */
export async function sentinelTogether(
  sentinel: NodeRedisSentinel,
  commands: readonly (readonly string[])[],
): Promise<readonly unknown[]> {
  const multi = sentinel.multi()
  for (const command of commands) multi.addCommand(false, command)
  return (await multi.execAsPipeline()).map(plain)
}

export function clusterSender(
  cluster: NodeRedisCluster,
): (command: readonly string[], key?: string) => Promise<unknown> {
  return async (command, key) => {
    // Left to itself, node-redis sends some of these to all nodes and adds the replies up.
    if (key === undefined) return sendOne(await anyMaster(cluster), command)
    if (isKeyless(command)) return sendOne(await masterOf(cluster, key, false), command)
    return plain(await cluster.sendCommand(key, false, command, OURS_ONLINE))
  }
}

export function clusterTogether(
  cluster: NodeRedisCluster,
  commands: readonly (readonly string[])[],
  key: string,
): Promise<readonly unknown[]> {
  const nodes = {
    master: (of: string, stale: boolean) => masterOf(cluster, of, stale),
    async at(address: string) {
      const node = cluster.masters.find((master) => master.address === address)
      return node && (await cluster.nodeClient(node))
    },
    send: sendTogether,
  }
  return togetherOnCluster<NodeRedisClient>(nodes, commands, key)
}

/** A command on the key itself makes node-redis follow MOVED and read its map of slots again, without a private call. */
export async function masterOf(cluster: NodeRedisCluster, key: string, stale: boolean): Promise<NodeRedisClient> {
  if (stale) await cluster.sendCommand(key, false, ['EXISTS', key], OURS_ONLINE)
  const master = cluster.slots[slotOf(key)]?.master
  if (master === undefined) throw new Error(`the cluster has no master for slot ${slotOf(key)}`)
  return cluster.nodeClient(master)
}

async function anyMaster(cluster: NodeRedisCluster): Promise<NodeRedisClient> {
  const [master] = cluster.masters
  if (master === undefined) throw new Error('the cluster has no masters: it is not connected')
  return cluster.nodeClient(master)
}

export function clusterMasters(cluster: NodeRedisCluster): readonly RedisMaster[] {
  return cluster.masters.map((node) => ({
    label: node.address,
    run: async (command) => sendOne(await cluster.nodeClient(node), command),
  }))
}

import type { RedisClient, RedisMaster, Send } from '../client.ts'
import { isKeyless, togetherOnCluster } from './cluster.ts'
import { lastError, reasonOf, withoutLogin } from './connection-errors.ts'
import { quietSender } from './ioredis-command.ts'
import { property, text } from '../../shared/shape.ts'
import { plain } from './reply.ts'
import { slotOf } from '../slot.ts'

/** What is used of an ioredis or iovalkey `Redis`. */
export interface IoredisClient {
  readonly status: string
  readonly mode?: string
  readonly options: object
  call(command: string, ...args: string[]): Promise<unknown>
  callBuffer(command: string, ...args: string[]): Promise<unknown>
  pipeline(): IoredisPipeline
  duplicate(override?: object): IoredisCopy
}

/** What is used of an ioredis or iovalkey `Cluster`. */
export interface IoredisCluster {
  readonly status: string
  readonly options: object
  readonly isCluster: boolean
  readonly slots: readonly (readonly string[])[]
  call(command: string, ...args: string[]): Promise<unknown>
  callBuffer(command: string, ...args: string[]): Promise<unknown>
  pipeline(): IoredisPipeline
  nodes(role: 'master'): readonly IoredisClient[]
}

export interface IoredisPipeline {
  call(command: string, ...args: string[]): unknown
  callBuffer(command: string, ...args: string[]): unknown
  exec(): Promise<readonly (readonly [unknown, unknown?])[] | null>
}

/** What is used of the copy of a client that becomes a subscriber. */
export interface IoredisCopy {
  connect(): Promise<unknown>
  disconnect(): void
  subscribe(channel: string): Promise<unknown>
  unsubscribe(channel: string): Promise<unknown>
  ssubscribe(channel: string): Promise<unknown>
  sunsubscribe(channel: string): Promise<unknown>
  ping(): Promise<unknown>
  on(event: string, listener: (first: never, second: never) => void): unknown
}

/**
 * `call` is as fast as a method of the command's own. Two options need another way:
 * - stringNumbers: only with Buffers for strings can a number be told from a string of digits.
 * - enableAutoPipelining: it loses the command's name with callBuffer, and on a Cluster versions before 6 group by the
 *   first argument, which for EVALSHA is the script's digest. A pipeline of one command is left alone.
 */
export function sender(client: IoredisClient | IoredisCluster): Send {
  const numbers = numbersAreStrings(client)
  if (property(client.options, 'enableAutoPipelining') === true && (numbers || 'isCluster' in client)) {
    return async (command) => (await pipelined(client, [command]))[0]
  }
  const explain = (error: unknown): never => {
    throw explained(client, error)
  }
  if (numbers) {
    return ([name = '', ...args]) => client.callBuffer(name, ...args).then(fromBuffers, explain)
  }
  const gather = gatherer(client)
  return (command) => {
    gather()
    return client.call(...(command as [string])).then(plain, explain)
  }
}

/** Of a client of one server whose options need no other way. */
export function senderInPieces(client: IoredisClient): RedisClient['send'] {
  if (numbersAreStrings(client) || property(client.options, 'enableAutoPipelining') === true) return undefined
  return quietSender(client, (error) => explained(client, error))
}

/**
 * ioredis writes every command to the socket by itself, and a write costs more than all the rest of a command. So in one turn
 * of the event loop, the commands after the first are held back until its end and go out in one write.
 */
function gatherer(client: IoredisClient | IoredisCluster): () => void {
  let turn: 'new' | 'written' | 'held' = 'new'
  let held: Corkable | undefined
  const end = (): void => {
    turn = 'new'
    held?.uncork()
    held = undefined
  }
  return () => {
    if (turn === 'new') {
      turn = 'written'
      process.nextTick(end)
    } else if (turn === 'written') {
      turn = 'held'
      const stream = 'stream' in client ? client.stream : undefined
      if (isCorkable(stream)) held = stream
      held?.cork()
    }
  }
}

/** A Node.js socket, of which this is all that is used. */
interface Corkable {
  cork(): void
  uncork(): void
}

function isCorkable(stream: unknown): stream is Corkable {
  return typeof property(stream, 'cork') === 'function' && typeof property(stream, 'uncork') === 'function'
}

/** Written to the socket in one piece, so that no other command comes between. */
export async function pipelined(
  client: IoredisClient | IoredisCluster,
  commands: readonly (readonly string[])[],
): Promise<readonly unknown[]> {
  const pipeline = client.pipeline()
  const numbers = numbersAreStrings(client)
  for (const [name = '', ...args] of commands) {
    if (numbers) pipeline.callBuffer(name, ...args)
    else pipeline.call(name, ...args)
  }
  const results = (await pipeline.exec()) ?? []
  return results.map(([error, reply]) => {
    if (error instanceof Error) throw explained(client, error)
    return numbers ? fromBuffers(reply) : plain(reply)
  })
}

/** ioredis says that it has given up, or that no node of a Cluster is there, but not why. */
function explained(client: IoredisClient | IoredisCluster, error: unknown): unknown {
  if (!(error instanceof Error)) return error
  withoutLogin(error)
  const last = error.name === 'MaxRetriesPerRequestError' ? lastError(client) : undefined
  if (last === undefined && !('lastNodeError' in error)) return error
  return new Error(reasonOf(last ?? error), { cause: error })
}

function numbersAreStrings({ options }: IoredisClient | IoredisCluster): boolean {
  return [options, property(options, 'redisOptions')].some((some) => property(some, 'stringNumbers') === true)
}

/** With stringNumbers a Buffer is a string and a string is a number. */
function fromBuffers(reply: unknown): unknown {
  if (typeof reply === 'string') return Number(reply)
  return Array.isArray(reply) ? reply.map(fromBuffers) : plain(reply)
}

export function clusterSender(client: IoredisCluster): (command: readonly string[], key?: string) => Promise<unknown> {
  const send = sender(client)
  return async (command, key) => {
    if (key === undefined || !isKeyless(command)) return send(command)
    return sender(await masterOf(client, key, false))(command)
  }
}

export function pipelinedOnCluster(
  client: IoredisCluster,
  commands: readonly (readonly string[])[],
  key: string,
): Promise<readonly unknown[]> {
  const nodes = {
    master: (of: string, stale: boolean) => masterOf(client, of, stale),
    at: (address: string) => Promise.resolve(client.nodes('master').find((node) => addressOf(node) === address)),
    send: pipelined,
  }
  return togetherOnCluster<IoredisClient>(nodes, commands, key)
}

/** A command on the key itself makes ioredis connect, follow MOVED and correct its map of slots, without a private call. */
export async function masterOf(client: IoredisCluster, key: string, stale: boolean): Promise<IoredisClient> {
  const known = stale ? undefined : knownMaster(client, key)
  if (known !== undefined) return known
  await pipelined(client, [['EXISTS', key]])
  const master = knownMaster(client, key)
  if (master === undefined) throw new Error(`the cluster has no master for slot ${slotOf(key)}`)
  return master
}

function knownMaster(client: IoredisCluster, key: string): IoredisClient | undefined {
  const address = client.slots[slotOf(key)]?.[0]
  return client.nodes('master').find((node) => addressOf(node) === address)
}

export async function clusterMasters(client: IoredisCluster): Promise<readonly RedisMaster[]> {
  // Before the first look at the cluster its nodes are those that the user named, replicas among them.
  if (client.slots.length === 0) await pipelined(client, [['PING']])
  return client.nodes('master').map((node) => ({ label: addressOf(node), run: sender(node) }))
}

export function addressOf({ options }: { readonly options: object }): string {
  return text(options, 'path') ?? `${text(options, 'host') ?? 'localhost'}:${text(options, 'port') ?? 6379}`
}

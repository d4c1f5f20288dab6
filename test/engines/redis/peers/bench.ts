import { Redis } from 'ioredis'
import { createClient, createClientPool } from 'redis'
import { onTestFinished } from 'vitest'
import { resourceKeys } from '../../../../src/engines/redis/keys.ts'
import { createLocks, type Engine, type LockEvent, type Locks, type LocksOptions } from '../../../../src/index.ts'
import { startProxy, type Proxy } from '../../../../harness/faults/proxy.ts'
import { startRedis, startRedisNodes, type RedisOptions, type RedisServer } from '../../../../harness/servers/redis.ts'
import { until } from '../../../../harness/until.ts'
import { startGate, type Gate } from './gate.ts'

// Everything made here ends with its test, the last one made first: locks before their clients, clients before servers.

export async function server(options?: RedisOptions): Promise<RedisServer> {
  const started = await startRedis(options)
  onTestFinished(() => started.stop())
  return started
}

export async function servers(count: number): Promise<[RedisServer, RedisServer, RedisServer, ...RedisServer[]]> {
  const { nodes, stop } = await startRedisNodes(count)
  onTestFinished(stop)
  return nodes as [RedisServer, RedisServer, RedisServer, ...RedisServer[]]
}

export async function proxyTo({ port }: RedisServer): Promise<Proxy> {
  const proxy = await startProxy(port)
  onTestFinished(() => proxy.close())
  return proxy
}

export async function gateTo({ port }: RedisServer): Promise<Gate> {
  const gate = await startGate(port)
  onTestFinished(() => gate[Symbol.asyncDispose]())
  return gate
}

/** Lost connections are what these tests are about; without a listener they would be printed or end the run. */
const quiet = (): void => undefined

/** With ioredis's own default options, as users have it. */
export function ioredis({ url }: { readonly url: string }): Redis {
  const client = new Redis(url).on('error', quiet)
  onTestFinished(() => client.disconnect())
  return client
}

/** With node-redis's own default options. */
export async function nodeRedis({ url }: { readonly url: string }) {
  const client = await createClient({ url }).on('error', quiet).connect()
  onTestFinished(() => client.destroy())
  return client
}

/** Several connections to one server: commands can overtake one another. */
export async function nodeRedisPool({ url }: { readonly url: string }) {
  const pool = createClientPool({ url }, { minimum: 3 }).on('error', quiet)
  await pool.connect()
  onTestFinished(() => pool.destroy())
  return pool
}

export interface Watched {
  readonly locks: Locks
  readonly events: LockEvent[]
  count(type: LockEvent['type']): number
  /** Waits for an event, the first one of its type from `from` on. */
  event<T extends LockEvent['type']>(type: T, from?: number): Promise<Extract<LockEvent, { type: T }>>
}

export function locksOn(engine: Engine, options: LocksOptions = {}): Watched {
  const events: LockEvent[] = []
  const { observe } = options
  const locks = createLocks(engine, {
    ...options,
    observe(event, name) {
      events.push(event)
      observe?.(event, name)
    },
  })
  onTestFinished(() => locks.close())
  return {
    locks,
    events,
    count: (type) => events.filter((event) => event.type === type).length,
    event: <T extends LockEvent['type']>(type: T, from = 0) =>
      until(() => events.slice(from).find((event): event is Extract<LockEvent, { type: T }> => event.type === type), {
        what: `an event '${type}'`,
        everyMs: 2,
      }),
  }
}

/** The nodes of a new deployment ask each other once; tests with faults do that before the fault. */
export async function settle({ locks }: Watched): Promise<void> {
  await locks.using('settle', { ttl: '30s' }, (lease) => lease.extend())
}

/** The lock key's value, '' where there is none. */
export function ownerOn(node: RedisServer, resource: string): Promise<string> {
  return node.cli('GET', resourceKeys('', resource).lock)
}

/** The fencing counter, 0 where there is none. */
export async function fenceOn(node: RedisServer, resource: string): Promise<bigint> {
  return BigInt((await node.cli('GET', resourceKeys('', resource).fence)) || '0')
}

export async function gone(nodes: readonly RedisServer[], resource: string): Promise<void> {
  await until(
    async () => (await Promise.all(nodes.map((node) => ownerOn(node, resource)))).every((owner) => owner === ''),
    {
      what: `no node has the key of ${resource}`,
    },
  )
}

/** How often the server was asked to run a script, by hash or by text, since it was told to forget; refused or not. */
export async function scriptCalls(node: RedisServer): Promise<number> {
  const stats = await node.cli('INFO', 'commandstats')
  const lines = stats.split('\n').filter((line) => /^cmdstat_eval(sha)?:/.test(line))
  const counts = lines.flatMap((line) => [...line.matchAll(/\b(?:calls|rejected_calls)=(\d+)/g)])
  return counts.reduce((sum, [, count]) => sum + Number(count), 0)
}

export async function aborted(signal: AbortSignal): Promise<unknown> {
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  return signal.reason
}

/** Puts another owner's lock on nodes, as another Redlock implementation would. */
export async function seize(nodes: readonly RedisServer[], resource: string): Promise<void> {
  for (const node of nodes) await node.cli('SET', resource, 'someone-else', 'PX', '60000')
}

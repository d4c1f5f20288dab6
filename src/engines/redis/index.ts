import { optionsOrThrow } from '../../arguments.ts'
import { systemClock, type Clock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine, EngineLimits, Guarantees } from '../../engine.ts'
import { systemRandom, type Random } from '../../random.ts'
import { driftOrThrow, LONGEST_TTL_MS, requestTimeoutOrThrow } from '../shared/limits.ts'
import type { RedisClient } from './client.ts'
import { recognise } from './drivers/recognise.ts'
import { OWN_KEYS } from './keys.ts'
import { RedisNode } from './node.ts'
import { RedisEngine } from './engine.ts'
import { LEAST_SIT_OUT_MS, UPTIME_GRAIN_MS } from './voters/standing.ts'

export type { RedisClient, RedisMaster, Subscriber } from './client.ts'
export { ioredis, iovalkey } from './drivers/ioredis.ts'
export { nodeRedis } from './drivers/node-redis.ts'
export { valkeyGlide } from './drivers/valkey-glide.ts'

interface CommonOptions {
  /** Stands before every lock key. Default none, so that other Redlock implementations see the same keys. */
  prefix?: string
  /** How long a node may take to answer. Default a tenth of the ttl, at least 100 ms (half of a shorter ttl), at most 2 s. */
  requestTimeout?: Duration
  /** How much clocks may differ in speed, as a part of the ttl. Default 0.01: a hundredth, and 2 ms on top. */
  drift?: number
  /** How long a resource's fencing counter is remembered after its last use. Default 7 d, at least 1 h. */
  fenceTtl?: Duration
  /** For tests: another clock. Default: the system's. */
  clock?: Clock
}

export interface RedisOptions extends CommonOptions {
  /** Grant and renew only what this many replicas have acknowledged. Default 0. */
  replicas?: number
  /** How long to wait for the replicas. Default 50 ms. */
  within?: Duration
}

export interface RedlockOptions extends CommonOptions {
  /**
   * The longest ttl that any client uses on these nodes. A node that may have forgotten leases does not vote for `maxTtl`, but at
   * least 5 s, and one second more. Default 60 s.
   */
  maxTtl?: Duration
  /**
   * What to do about a node that restarted, or is new, and may have forgotten leases. `auto` (default): it sits out, unless it
   * forgets nothing, the whole deployment is new, or nobody has used the quorum since it started and that is long enough ago.
   * `strict`: only the last of these counts. `trust`: it never sits out.
   */
  restart?: 'auto' | 'strict' | 'trust'
  /** For tests: another source of random numbers. Default: the system's. */
  random?: Random
}

/** Leases on one Redis or Valkey: a server, a Sentinel group or a Cluster. */
export function redis(client: unknown, options: RedisOptions = {}): Engine {
  optionsOrThrow(options, [...COMMON_OPTIONS, 'replicas', 'within'])
  const { replicas = 0, within = 50 } = options
  if (!Number.isInteger(replicas) || replicas < 0) {
    throw new RangeError(`replicas: expected a whole number from 0 on, got ${shown(replicas)}`)
  }
  const withinMs = durationMs(within, 'within', { minMs: 1, maxMs: 60_000 })
  return engine('redis', [usable(client, 'client')], options, {
    // There is no other node to ask, so the node votes at once after a restart; see docs/guarantees.md.
    restart: 'trust',
    maxTtlMs: LONGEST_TTL_MS,
    replicas: { count: replicas, withinMs },
    guarantees: REDIS_GUARANTEES,
  })
}

/** Leases on a quorum of independent Redis masters: three or more, and best an odd number. */
export function redlock(clients: readonly unknown[], options: RedlockOptions = {}): Engine {
  if (!Array.isArray(clients)) {
    const hint = typeof clients === 'object' && clients !== null ? '; pass them as one array: redlock([a, b, c])' : ''
    throw new TypeError(`clients: expected an array of Redis clients, got ${shown(clients)}${hint}`)
  }
  if (clients.length < 3) {
    throw new RangeError(
      `clients: expected at least 3 independent Redis masters, got ${clients.length}; for one server use redis(client)`,
    )
  }
  optionsOrThrow(options, [...COMMON_OPTIONS, 'maxTtl', 'restart', 'random'])
  const { restart = 'auto', maxTtl = 60_000, random } = options
  if (!['auto', 'strict', 'trust'].includes(restart)) {
    throw new TypeError(`restart: expected 'auto', 'strict' or 'trust', got ${shown(restart)}`)
  }
  const recognised = clients.map((client: unknown, index) => usable(client, `clients[${index}]`))
  for (const [index, { identity, cluster, server, label }] of recognised.entries()) {
    if (cluster) {
      throw new TypeError(
        `clients[${index}]: expected a client of one master, got a Redis Cluster; use redis(cluster) for it`,
      )
    }
    const first = recognised.findIndex((other) => other.identity === identity)
    if (first !== index) {
      throw new TypeError(`clients[${index}]: expected a client of its own, got the same object as clients[${first}]`)
    }
    const twin = recognised.findIndex((other) => server !== undefined && other.server === server)
    if (twin !== -1 && twin !== index) {
      throw new TypeError(
        `clients[${index}]: expected each server once, got a second client of ${label}, that of clients[${twin}]; ` +
          'a server with two votes could decide alone',
      )
    }
  }
  return engine('redlock', recognised, options, {
    restart,
    ...(random === undefined ? {} : { random }),
    maxTtlMs: durationMs(maxTtl, 'maxTtl', { minMs: 1000, maxMs: LONGEST_TTL_MS }),
    replicas: { count: 0, withinMs: 0 },
    guarantees: redlockGuarantees(clients.length),
  })
}

const DEFAULT_FENCE_TTL_MS = 7 * 86_400_000
/** Numbers keep growing after a counter was forgotten while that is longer ago than the nodes' clocks disagree. */
const LEAST_FENCE_TTL_MS = 3_600_000
/** Small against the ttl: at least what a busy machine needs, and nobody waits longer for a dead node. */
const REQUEST_TIMEOUT = { divisor: 10, leastMs: 100, mostMs: 2000 }

interface Variant {
  readonly restart: 'auto' | 'strict' | 'trust'
  readonly random?: Random
  readonly maxTtlMs: number
  readonly replicas: { readonly count: number; readonly withinMs: number }
  readonly guarantees: Guarantees
}

function engine(
  name: 'redis' | 'redlock',
  clients: readonly RedisClient[],
  options: CommonOptions,
  kind: Variant,
): Engine {
  const { prefix = '', requestTimeout, drift, fenceTtl = DEFAULT_FENCE_TTL_MS, clock = systemClock } = options
  if (typeof prefix !== 'string') throw new TypeError(`prefix: expected a string, got ${shown(prefix)}`)
  if (prefix.startsWith(OWN_KEYS)) {
    throw new RangeError(
      `prefix: expected one that does not begin with '${OWN_KEYS}', where the engine keeps its own keys, got ${shown(prefix)}`,
    )
  }
  const longer = name === 'redlock' ? { longer: 'redlock(clients, { maxTtl }) allows for more' } : {}
  const limits: EngineLimits = { maxTtlMs: kind.maxTtlMs, ...longer, driftMs: driftOrThrow(drift) }
  const sitOutMs = kind.restart === 'trust' ? 0 : Math.max(kind.maxTtlMs, LEAST_SIT_OUT_MS) + UPTIME_GRAIN_MS
  const random = kind.random ?? systemRandom
  const timeoutMs = requestTimeoutOrThrow(requestTimeout, REQUEST_TIMEOUT)
  const replicaWaitMs = kind.replicas.count > 0 ? kind.replicas.withinMs : 0
  const nodeOptions = {
    clock,
    prefix,
    fenceTtlMs: durationMs(fenceTtl, 'fenceTtl', { minMs: LEAST_FENCE_TTL_MS, maxMs: LONGEST_TTL_MS }),
    sitOutMs,
    random,
    replicas: kind.replicas,
  }
  const labels = clients.map(({ label }, index) =>
    clients.filter((other) => other.label === label).length > 1 ? `${label}#${index}` : label,
  )
  return new RedisEngine(
    clients.map((client, index) => new RedisNode(client, labels[index]!, nodeOptions)),
    {
      name,
      guarantees: kind.guarantees,
      limits,
      prefix,
      clock,
      random,
      restart: kind.restart,
      sitOutMs,
      replicas: kind.replicas.count,
      timeoutMs: (ttlMs) => timeoutMs(ttlMs) + replicaWaitMs,
    },
  )
}

const COMMON_OPTIONS = ['prefix', 'requestTimeout', 'drift', 'fenceTtl', 'clock']

function usable(value: unknown, option: string): RedisClient {
  const client = named(option, () => recognise(value))
  const why = client.unusable()
  if (why !== undefined)
    throw new TypeError(`${option}: expected a client that can be used, but ${client.label}: ${why}`)
  return client
}

/** Says which of the clients an error is about. */
function named<T>(option: string, make: () => T): T {
  try {
    return make()
  } catch (error) {
    throw error instanceof TypeError ? new TypeError(`${option}: ${error.message}`) : error
  }
}

const TOKEN = 'a counter a resource on every node, raised with the grant in one step and proposed from the clock'

const REDIS_GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the server',
  token: TOKEN,
  survives: { serverRestart: 'with fsync on every write', lossOfServers: 0, failover: 'not promised' },
  order: 'first come, first served by process',
  shared: true,
}

function redlockGuarantees(size: number): Guarantees {
  return {
    exclusion: 'clocks within the drift allowance',
    clock: 'each server of the quorum',
    token: TOKEN,
    survives: { serverRestart: 'yes', lossOfServers: Math.ceil(size / 2) - 1, failover: 'no' },
    order: 'first come, first served by process',
    shared: true,
  }
}

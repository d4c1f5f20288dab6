import { optionsOrThrow } from '../../arguments.ts'
import { systemClock, type Clock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine, EngineLimits, Guarantees } from '../../engine.ts'
import type { RedisClient } from './client.ts'
import { recognise } from './drivers/recognise.ts'
import { RedisNode } from './node.ts'
import { QuorumEngine } from './quorum.ts'
import { CLAMP_US } from './scripts.ts'

export type { RedisClient, RedisMaster, Subscriber } from './client.ts'
export { ioredis, iovalkey } from './drivers/ioredis.ts'
export { nodeRedis } from './drivers/node-redis.ts'
export { valkeyGlide } from './drivers/valkey-glide.ts'

interface CommonOptions {
  /** Stands before every lock key. Default none, so that other Redlock implementations see the same keys. */
  prefix?: string
  /** How long a node may take to answer. Default a tenth of the ttl, at least 100 ms (half of a shorter ttl), at most 2 s. */
  nodeTimeout?: Duration
  /** How much clocks may differ in speed, as a part of the ttl. Default 0.01: a hundredth, and 2 ms on top. */
  drift?: number
  /** How long a resource's fencing counter is remembered after its last use. Default 7 d, at least 1 h. */
  fenceTtl?: Duration
  clock?: Clock
}

export interface RedisOptions extends CommonOptions {
  /** Grant and renew only what so many replicas have acknowledged. Default 0. */
  replicas?: number
  /** How long to wait for the replicas. Default 50 ms. */
  within?: Duration
}

export interface RedlockOptions extends CommonOptions {
  /** The longest ttl anyone uses on these nodes; a node that restarted does not vote for that long, and at least 5 s. Default 60 s. */
  maxTtl?: Duration
  /**
   * What to do about a node that restarted and may have forgotten leases. `auto` (default): it sits out, unless its
   * persistence forgets nothing or the whole deployment is new. `strict`: it always sits out. `trust`: it never does.
   */
  restart?: 'auto' | 'strict' | 'trust'
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
    // There is nobody else to ask, so the node votes at once after a restart; see docs/guarantees.md.
    restart: 'trust',
    maxTtlMs: LONGEST_TTL_MS,
    replicas: { count: replicas, withinMs },
    guarantees: REDIS_GUARANTEES,
  })
}

/** Leases on a quorum of independent Redis masters: three or more, and best an odd number. */
export function redlock(clients: readonly unknown[], options: RedlockOptions = {}): Engine {
  if (!Array.isArray(clients)) throw new TypeError(`clients: expected an array of Redis clients, got ${shown(clients)}`)
  if (clients.length < 3) {
    throw new RangeError(
      `clients: expected at least 3 independent Redis masters, got ${clients.length}; for one server use redis(client)`,
    )
  }
  optionsOrThrow(options, [...COMMON_OPTIONS, 'maxTtl', 'restart'])
  const { restart = 'auto', maxTtl = 60_000 } = options
  if (!['auto', 'strict', 'trust'].includes(restart)) {
    throw new TypeError(`restart: expected 'auto', 'strict' or 'trust', got ${shown(restart)}`)
  }
  const recognised = clients.map((client: unknown, index) => usable(client, `clients[${index}]`))
  for (const [index, { identity, cluster }] of recognised.entries()) {
    if (cluster) {
      throw new TypeError(
        `clients[${index}]: expected a client of one master, got a Redis Cluster; use redis(cluster) for it`,
      )
    }
    const first = recognised.findIndex((other) => other.identity === identity)
    if (first !== index) {
      throw new TypeError(`clients[${index}]: expected a client of its own, got the same object as clients[${first}]`)
    }
  }
  return engine('redlock', recognised, options, {
    restart,
    maxTtlMs: durationMs(maxTtl, 'maxTtl', { minMs: 1000, maxMs: LONGEST_TTL_MS }),
    replicas: { count: 0, withinMs: 0 },
    guarantees: redlockGuarantees(clients.length),
  })
}

/** A year. Redis itself takes more, but nobody waits for a lock that long. */
const LONGEST_TTL_MS = 365 * 86_400_000
const DEFAULT_FENCE_TTL_MS = 7 * 86_400_000
/** Numbers keep growing after a counter was forgotten while that is longer ago than the nodes' clocks disagree. */
const LEAST_FENCE_TTL_MS = 3_600_000
const DEFAULT_DRIFT = 0.01
/** Redis counts a node's uptime in whole seconds. */
const UPTIME_GRAIN_MS = 1000
/**
 * A node that forgot its counters numbers on from its clock. Until its numbers are above all that it has forgotten, so much
 * must pass, however short the leases are: one client's proposals may have been ahead by the clamp, the next one's behind
 * by as much, and the nodes' own clocks may be a second apart.
 */
const LEAST_SIT_OUT_MS = (2 * CLAMP_US) / 1000 + 1000

interface Kind {
  readonly restart: 'auto' | 'strict' | 'trust'
  readonly maxTtlMs: number
  readonly replicas: { readonly count: number; readonly withinMs: number }
  readonly guarantees: Guarantees
}

function engine(
  name: 'redis' | 'redlock',
  clients: readonly RedisClient[],
  options: CommonOptions,
  kind: Kind,
): Engine {
  const {
    prefix = '',
    nodeTimeout,
    drift = DEFAULT_DRIFT,
    fenceTtl = DEFAULT_FENCE_TTL_MS,
    clock = systemClock,
  } = options
  if (typeof prefix !== 'string') throw new TypeError(`prefix: expected a string, got ${shown(prefix)}`)
  if (typeof drift !== 'number' || !(drift >= 0 && drift <= 0.5)) {
    throw new RangeError(`drift: expected a part of the ttl from 0 to 0.5, got ${shown(drift)}`)
  }
  const longer = name === 'redlock' ? { longer: 'redlock(clients, { maxTtl }) allows for more' } : {}
  const limits: EngineLimits = { maxTtlMs: kind.maxTtlMs, ...longer, driftMs: (ttlMs) => Math.ceil(ttlMs * drift) + 2 }
  const nodeOptions = {
    clock,
    prefix,
    fenceTtlMs: durationMs(fenceTtl, 'fenceTtl', { minMs: LEAST_FENCE_TTL_MS, maxMs: LONGEST_TTL_MS }),
    sitOutMs: kind.restart === 'trust' ? 0 : Math.max(kind.maxTtlMs, LEAST_SIT_OUT_MS) + UPTIME_GRAIN_MS,
    replicas: kind.replicas,
  }
  const labels = clients.map(({ label }, index) =>
    clients.filter((other) => other.label === label).length > 1 ? `${label}#${index}` : label,
  )
  return new QuorumEngine(
    clients.map((client, index) => new RedisNode(client, labels[index]!, nodeOptions)),
    {
      name,
      guarantees: kind.guarantees,
      limits,
      prefix,
      clock,
      restart: kind.restart,
      nodeTimeoutMs:
        nodeTimeout === undefined ? undefined : durationMs(nodeTimeout, 'nodeTimeout', { minMs: 1, maxMs: 60_000 }),
      replicas: kind.replicas.count,
      replicaWaitMs: kind.replicas.count > 0 ? kind.replicas.withinMs : 0,
    },
  )
}

const COMMON_OPTIONS = ['prefix', 'nodeTimeout', 'drift', 'fenceTtl', 'clock']

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
  order: 'first come, first served in one process',
}

function redlockGuarantees(size: number): Guarantees {
  return {
    exclusion: 'clocks within the drift allowance',
    clock: 'each server of the quorum',
    token: TOKEN,
    survives: { serverRestart: 'yes', lossOfServers: Math.ceil(size / 2) - 1, failover: 'no' },
    order: 'first come, first served in one process',
  }
}

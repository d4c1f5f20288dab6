import { optionsOrThrow } from '../../arguments.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import { LONGEST_TTL_MS } from '../shared/limits.ts'
import {
  DEFAULT_MAX_TTL_MS,
  independent,
  makeEngine,
  REDIS_GUARANTEES,
  redlockGuarantees,
  usable,
  type CommonOptions,
} from './make.ts'

export type { RedisClient, RedisMaster, Subscriber } from './client.ts'
export { ioredis, iovalkey } from './drivers/ioredis.ts'
export { nodeRedis } from './drivers/node-redis.ts'
export { valkeyGlide } from './drivers/valkey-glide.ts'

/** Options of `redis`: one server, a Sentinel group or a Cluster. */
export interface RedisOptions extends CommonOptions {
  /** Grant and renew only what this many replicas have acknowledged. Default 0. */
  replicas?: number
  /** How long to wait for the replicas. Default 50 ms. */
  within?: Duration
}

/** Options of `redlock`: several independent masters, of which a majority decides. */
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
}

/** Leases on one Redis or Valkey: a server, a Sentinel group or a Cluster. */
export function redis(client: unknown, options: RedisOptions = {}): Engine {
  optionsOrThrow(options, [...COMMON_OPTIONS, 'replicas', 'within'])
  const { replicas = 0, within = 50 } = options
  if (!Number.isInteger(replicas) || replicas < 0) {
    throw new RangeError(`replicas: expected a whole number from 0 on, got ${shown(replicas)}`)
  }
  const withinMs = durationMs(within, 'within', { minMs: 1, maxMs: 60_000 })
  return makeEngine('redis', [usable(client, 'client')], options, {
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
  optionsOrThrow(options, [...COMMON_OPTIONS, 'maxTtl', 'restart'])
  const { restart = 'auto', maxTtl = DEFAULT_MAX_TTL_MS } = options
  if (!['auto', 'strict', 'trust'].includes(restart)) {
    throw new TypeError(`restart: expected 'auto', 'strict' or 'trust', got ${shown(restart)}`)
  }
  return makeEngine('redlock', independent(clients), options, {
    restart,
    maxTtlMs: durationMs(maxTtl, 'maxTtl', { minMs: 1000, maxMs: LONGEST_TTL_MS }),
    replicas: { count: 0, withinMs: 0 },
    guarantees: redlockGuarantees(clients.length),
  })
}

const COMMON_OPTIONS = ['prefix', 'requestTimeout', 'drift', 'fenceTtl', 'clock', 'random']

import { clockOrThrow, type Clock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine, EngineLimits, Guarantees } from '../../engine.ts'
import { randomOrThrow, type Random } from '../../random.ts'
import { driftOrThrow, LONGEST_TTL_MS, requestTimeoutOrThrow } from '../shared/limits.ts'
import type { RedisClient } from './client.ts'
import { recognise } from './drivers/recognise.ts'
import { RedisEngine } from './engine.ts'
import { OWN_KEYS } from './keys.ts'
import { RedisNode } from './node.ts'
import type { Heard } from './request.ts'
import type { Step } from './steps.ts'
import { LEAST_SIT_OUT_MS, UPTIME_GRAIN_MS } from './voters/standing.ts'

export interface CommonOptions {
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
  /** For tests: another source of random numbers. Default: the system's. */
  random?: Random
}

/**
 * What `ringfence/redlock` is made of: one client or several, also two, and every ttl. A node that may have forgotten
 * leases still sits out for `maxTtl` only, so a holder that asks for more proves the lease more often than that. `hear`: as of a node,
 * which it is given by its place.
 */
export function forRedlockUsers(
  clients: readonly unknown[],
  options: Pick<CommonOptions, 'prefix' | 'drift' | 'clock' | 'random'> & { readonly maxTtl?: Duration },
  hear: (node: number, step: Step<unknown>) => Heard | undefined,
): Engine {
  const { maxTtl = DEFAULT_MAX_TTL_MS } = options
  const maxTtlMs = durationMs(maxTtl, 'maxTtl', { minMs: 1000, maxMs: LONGEST_TTL_MS })
  const common = { maxTtlMs, longestTtlMs: NO_LIMIT_MS, replicas: { count: 0, withinMs: 0 }, hear }
  if (clients.length === 1) {
    const one = { ...common, restart: 'trust', guarantees: REDIS_GUARANTEES } as const
    return makeEngine('redis', [usable(clients[0], 'clients[0]')], options, one)
  }
  const several = { ...common, restart: 'auto', guarantees: redlockGuarantees(clients.length) } as const
  return makeEngine('redlock', independent(clients), options, several)
}

/** Clients of different servers, none of which is a Cluster. */
export function independent(clients: readonly unknown[]): RedisClient[] {
  const recognised = clients.map((client: unknown, index) => usable(client, `clients[${index}]`))
  for (const [index, { identity, cluster, server, label }] of recognised.entries()) {
    if (cluster) {
      throw new TypeError(
        `clients[${index}]: expected a client of one master, got a Redis Cluster; use redis(cluster) for it`,
      )
    }
    const first = recognised.findIndex((other) => other.identity === identity)
    if (first !== index) {
      throw new TypeError(
        `clients[${index}]: expected a client of its own, got the same object as clients[${first}]; write each once`,
      )
    }
    const twin = recognised.findIndex((other) => server !== undefined && other.server === server)
    if (twin !== -1 && twin !== index) {
      throw new TypeError(
        `clients[${index}]: expected each server once, got a second client of ${label}, that of clients[${twin}]; ` +
          'a server with two votes could decide alone',
      )
    }
  }
  return recognised
}

/** What JavaScript and Lua count exactly. */
const NO_LIMIT_MS = Number.MAX_SAFE_INTEGER
export const DEFAULT_MAX_TTL_MS = 60_000
const DEFAULT_FENCE_TTL_MS = 7 * 86_400_000
/** Numbers keep growing after a counter was forgotten while that is longer ago than the nodes' clocks disagree. */
const LEAST_FENCE_TTL_MS = 3_600_000
/** Small against the ttl: at least what a busy machine needs, and nobody waits longer for a dead node. */
const REQUEST_TIMEOUT = { divisor: 10, leastMs: 100, mostMs: 2000 }

interface Variant {
  readonly restart: 'auto' | 'strict' | 'trust'
  readonly maxTtlMs: number
  /** Default: `maxTtlMs`. */
  readonly longestTtlMs?: number
  readonly hear?: (node: number, step: Step<unknown>) => Heard | undefined
  readonly replicas: { readonly count: number; readonly withinMs: number }
  readonly guarantees: Guarantees
}

export function makeEngine(
  name: 'redis' | 'redlock',
  clients: readonly RedisClient[],
  options: CommonOptions,
  kind: Variant,
): Engine {
  const { prefix = '', requestTimeout, drift, fenceTtl = DEFAULT_FENCE_TTL_MS } = options
  const clock = clockOrThrow(options.clock)
  const random = randomOrThrow(options.random)
  if (typeof prefix !== 'string') throw new TypeError(`prefix: expected a string, got ${shown(prefix)}`)
  if (prefix.startsWith(OWN_KEYS)) {
    throw new RangeError(
      `prefix: expected one that does not begin with '${OWN_KEYS}', where the engine keeps its own keys, got ${shown(prefix)}; 'app:' is one`,
    )
  }
  const longer = name === 'redlock' ? { longer: 'redlock(clients, { maxTtl }) allows for more' } : {}
  const { maxTtlMs, longestTtlMs = maxTtlMs, hear } = kind
  const limits: EngineLimits = { maxTtlMs: longestTtlMs, ...longer, driftMs: driftOrThrow(drift) }
  const sitOutMs = kind.restart === 'trust' ? 0 : Math.max(maxTtlMs, LEAST_SIT_OUT_MS) + UPTIME_GRAIN_MS
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
    clients.map((client, index) => {
      const own = hear === undefined ? {} : { hear: (step: Step<unknown>) => hear(index, step) }
      return new RedisNode(client, labels[index]!, { ...nodeOptions, ...own })
    }),
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

export function usable(value: unknown, option: string): RedisClient {
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

export const REDIS_GUARANTEES: Guarantees = {
  exclusion: 'clocks within the drift allowance',
  clock: 'the server',
  token: TOKEN,
  survives: { serverRestart: 'with fsync on every write', lossOfServers: 0, failover: 'not promised' },
  order: 'first come, first served by process',
  shared: true,
}

export function redlockGuarantees(size: number): Guarantees {
  return {
    exclusion: 'clocks within the drift allowance',
    clock: 'each server of the quorum',
    token: TOKEN,
    survives: { serverRestart: 'yes', lossOfServers: Math.ceil(size / 2) - 1, failover: 'no' },
    order: 'first come, first served by process',
    shared: true,
  }
}

import { optionsOrThrow } from '../../arguments.ts'
import { clockOrThrow } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import { randomOrThrow } from '../../random.ts'
import { Endpoints } from '../shared/http/endpoints.ts'
import {
  HTTP_OPTIONS,
  httpTimeoutOrThrow,
  prefixOrThrow,
  secretOrThrow,
  transportOrThrow,
  urlsOrThrow,
  type HttpOptions,
} from '../shared/http/options.ts'
import { ConsulClient } from './client.ts'
import { ConsulEngine } from './engine.ts'

export type { Fetch, FetchReply, TlsOptions } from '../shared/http/transport.ts'

/** Options of `consul`. */
export interface ConsulOptions extends HttpOptions {
  /** The ACL token: session "write" on the agent's node, key_prefix "write" on the prefix. */
  token?: string
  /**
   * For this long, 0 to 60 s, nobody gets what a session held that ended by itself. It does not apply to a release. Default:
   * the ttl, at most 60 s. A session can end early (its agent leaves the cluster), and its holder does not know that at once.
   */
  lockDelay?: Duration
  /** The shortest ttl: what `session_ttl_min` is on the servers. Default 10 s, like theirs. */
  sessionTtlMin?: Duration
  /**
   * The catalog node that sessions belong to, and end with. Default: the agent's own, so leases end when that agent leaves
   * the cluster. A node that was registered for this purpose never leaves.
   */
  node?: string
  /** Default: the agent's own. Another one needs a `node` of that datacenter. */
  datacenter?: string
  /** For Consul Enterprise. */
  namespace?: string
}

const OPTIONS = [...HTTP_OPTIONS, 'token', 'lockDelay', 'sessionTtlMin', 'node', 'datacenter', 'namespace']

/** Consul's own bounds. */
const MOST_LOCK_DELAY_MS = 60_000
const DEFAULT_SESSION_TTL_MIN_MS = 10_000

/** Leases on Consul, through an agent. With several URLs, the next one is asked when one does not answer. */
export function consul(url: string | readonly string[], options: ConsulOptions = {}): Engine {
  const urls = urlsOrThrow(url, 'url', 'http://127.0.0.1:8500')
  optionsOrThrow(options, OPTIONS)
  const clock = clockOrThrow(options.clock)
  const random = randomOrThrow(options.random)
  const { lockDelay, sessionTtlMin = DEFAULT_SESSION_TTL_MIN_MS } = options
  const lockDelayMs =
    lockDelay === undefined ? undefined : durationMs(lockDelay, 'lockDelay', { maxMs: MOST_LOCK_DELAY_MS })
  const client = new ConsulClient(new Endpoints(urls, transportOrThrow(options), clock), {
    token: secretOrThrow(options.token, 'token'),
    datacenter: nameOrThrow(options.datacenter, 'datacenter'),
    namespace: nameOrThrow(options.namespace, 'namespace'),
  })
  return new ConsulEngine({
    client,
    prefix: plainPrefixOrThrow(options.prefix),
    clock,
    random,
    node: nameOrThrow(options.node, 'node'),
    minTtlMs: durationMs(sessionTtlMin, 'sessionTtlMin', { minMs: 100, maxMs: 86_400_000 }),
    lockDelayMs: (ttlMs) => lockDelayMs ?? Math.min(ttlMs, MOST_LOCK_DELAY_MS),
    timeoutMs: httpTimeoutOrThrow(options.requestTimeout),
  })
}

/** It becomes part of URLs. */
function plainPrefixOrThrow(given: unknown): string {
  const prefix = prefixOrThrow(given)
  const plain = prefix
    .slice(0, -1)
    .split('/')
    .every((part) => /^[\w.~:@-]+$/.test(part) && !/^\.+$/.test(part))
  if (!plain) {
    throw new RangeError(
      `prefix: expected letters, digits and -_.~:@ between slashes, such as 'ringfence' or 'app/locks', got ${shown(given)}`,
    )
  }
  return prefix
}

function nameOrThrow(given: unknown, option: string): string | undefined {
  if (given === undefined) return undefined
  if (typeof given !== 'string' || given === '') throw new TypeError(`${option}: expected a name, got ${shown(given)}`)
  return given
}

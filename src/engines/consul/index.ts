import { optionsOrThrow } from '../../arguments.ts'
import { systemClock, type Clock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import { systemRandom } from '../../random.ts'
import { Endpoints } from '../http/endpoints.ts'
import { prefixOrThrow, requestTimeoutOrThrow, secretOrThrow, transportOrThrow, urlsOrThrow } from '../http/options.ts'
import type { Fetch, TlsOptions } from '../http/transport.ts'
import { ConsulClient } from './client.ts'
import { ConsulEngine } from './engine.ts'

export type { Fetch, FetchReply, TlsOptions } from '../http/transport.ts'

export interface ConsulOptions {
  /** Stands before every key, with a slash between. Default `ringfence`. */
  prefix?: string
  /** The ACL token: session "write" on the agent's node, key_prefix "write" on the prefix. */
  token?: string
  /**
   * How long nobody gets what a session had that ended by itself, 0 to 60 s; a release is not subject to it. Default the
   * ttl, up to 60 s: a session can end early (its agent leaves the cluster), and then its holder still counts on it.
   */
  lockDelay?: Duration
  /** What the servers were told with `session_ttl_min`: the shortest ttl. Default 10 s, as theirs. */
  sessionTtlMin?: Duration
  /**
   * The catalog node that sessions belong to, and end with. Default the agent's own, so leases end when that agent leaves
   * the cluster; a node that was registered for the purpose never does.
   */
  node?: string
  /** Default the agent's own. Another one needs `node`, one of that datacenter. */
  datacenter?: string
  /** Consul Enterprise. */
  namespace?: string
  /** Certificates, for https. */
  tls?: TlsOptions
  /** How long a server may take to answer before the next one is asked. Default a sixth of the ttl, 250 ms to 2 s. */
  requestTimeout?: Duration
  /** Makes the requests instead of node:http, for a proxy or for tracing; it then has to know the certificates. */
  fetch?: Fetch
  clock?: Clock
}

const OPTIONS = [
  'prefix',
  'token',
  'lockDelay',
  'sessionTtlMin',
  'node',
  'datacenter',
  'namespace',
  'tls',
  'requestTimeout',
  'fetch',
  'clock',
]

/** Consul's own bounds. */
const MOST_LOCK_DELAY_MS = 60_000
const DEFAULT_SESSION_TTL_MIN_MS = 10_000

/** Leases on Consul, through an agent; with several URLs another one is asked when one does not answer. */
export function consul(url: string | readonly string[], options: ConsulOptions = {}): Engine {
  const urls = urlsOrThrow(url, 'url', 'http://127.0.0.1:8500')
  optionsOrThrow(options, OPTIONS)
  const { clock = systemClock, lockDelay, sessionTtlMin = DEFAULT_SESSION_TTL_MIN_MS } = options
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
    random: systemRandom,
    node: nameOrThrow(options.node, 'node'),
    minTtlMs: durationMs(sessionTtlMin, 'sessionTtlMin', { minMs: 100, maxMs: 86_400_000 }),
    lockDelayMs: (ttlMs) => lockDelayMs ?? Math.min(ttlMs, MOST_LOCK_DELAY_MS),
    timeoutMs: requestTimeoutOrThrow(options.requestTimeout),
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

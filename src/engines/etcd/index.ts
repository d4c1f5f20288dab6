import { optionsOrThrow } from '../../arguments.ts'
import { systemClock, type Clock } from '../../clock.ts'
import type { Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import { systemRandom } from '../../random.ts'
import { Endpoints } from '../http/endpoints.ts'
import { prefixOrThrow, requestTimeoutOrThrow, secretOrThrow, transportOrThrow, urlsOrThrow } from '../http/options.ts'
import type { Fetch, TlsOptions } from '../http/transport.ts'
import { EtcdEngine } from './engine.ts'
import { Gateway, type Login } from './gateway.ts'
import { keysUnder } from './keys.ts'

export type { Fetch, FetchReply, TlsOptions } from '../http/transport.ts'

export interface EtcdOptions {
  /** Stands before every key, with a slash between. Default `ringfence`. */
  prefix?: string
  /** A user of etcd's own, with a role that may read and write all keys with the prefix. */
  username?: string
  password?: string
  /** Certificates, for https. */
  tls?: TlsOptions
  /** How long a member may take to answer before the next one is asked. Default a sixth of the ttl, 250 ms to 2 s. */
  requestTimeout?: Duration
  /** Makes the requests instead of node:http, for a proxy or for tracing; it then has to know the certificates. */
  fetch?: Fetch
  clock?: Clock
}

const OPTIONS = ['prefix', 'username', 'password', 'tls', 'requestTimeout', 'fetch', 'clock']

/**
 * Leases on an etcd cluster, 3.4 or newer, by its JSON gateway. Give the client URLs of all its members: another one is
 * asked when one does not answer.
 */
export function etcd(endpoints: string | readonly string[], options: EtcdOptions = {}): Engine {
  const urls = urlsOrThrow(endpoints, 'endpoints', 'http://127.0.0.1:2379')
  optionsOrThrow(options, OPTIONS)
  const { clock = systemClock } = options
  const prefix = prefixOrThrow(options.prefix)
  const login = loginOrThrow(options)
  const timeoutMs = requestTimeoutOrThrow(options.requestTimeout)
  const gateway = new Gateway(new Endpoints(urls, transportOrThrow(options), clock), login)
  return new EtcdEngine({
    gateway,
    keys: keysUnder(prefix),
    prefix,
    clock,
    random: systemRandom,
    loggedIn: login !== undefined,
    timeoutMs,
  })
}

function loginOrThrow({ username, password }: EtcdOptions): Login | undefined {
  const [user, secret] = [secretOrThrow(username, 'username'), secretOrThrow(password, 'password')]
  if (user === undefined && secret === undefined) return undefined
  if (user === undefined || secret === undefined)
    throw new TypeError(
      `expected username and password together, got ${user === undefined ? 'password' : 'username'} alone`,
    )
  return { username: user, password: secret }
}

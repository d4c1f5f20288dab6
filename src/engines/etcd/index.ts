import { optionsOrThrow } from '../../arguments.ts'
import { systemClock, type Clock } from '../../clock.ts'
import type { Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import { systemRandom, type Random } from '../../random.ts'
import { Endpoints } from '../shared/http/endpoints.ts'
import {
  httpTimeoutOrThrow,
  prefixOrThrow,
  secretOrThrow,
  transportOrThrow,
  urlsOrThrow,
} from '../shared/http/options.ts'
import type { Fetch, TlsOptions } from '../shared/http/transport.ts'
import { EtcdClient, type EtcdLogin } from './client.ts'
import { EtcdEngine } from './engine.ts'
import { keysUnder } from './keys.ts'

export type { Fetch, FetchReply, TlsOptions } from '../shared/http/transport.ts'

/** Options of `etcd`. */
export interface EtcdOptions {
  /** Every key begins with it and a slash. Default `ringfence`. */
  prefix?: string
  /** An etcd user whose role may read and write all keys with the prefix. */
  username?: string
  password?: string
  /** Certificates, for https. */
  tls?: TlsOptions
  /** At most this long a member may take to answer before the next one is asked. Default: a sixth of the ttl, 250 ms to 2 s. */
  requestTimeout?: Duration
  /** Makes the requests instead of node:http, for a proxy or for tracing. It then needs to know the certificates. */
  fetch?: Fetch
  clock?: Clock
  random?: Random
}

const OPTIONS = ['prefix', 'username', 'password', 'tls', 'requestTimeout', 'fetch', 'clock', 'random']

/**
 * Leases on an etcd cluster, 3.4 or newer, through its JSON gateway. Give the client URLs of all members: when one does not
 * answer, the next one is asked.
 */
export function etcd(endpoints: string | readonly string[], options: EtcdOptions = {}): Engine {
  const urls = urlsOrThrow(endpoints, 'endpoints', 'http://127.0.0.1:2379')
  optionsOrThrow(options, OPTIONS)
  const { clock = systemClock, random = systemRandom } = options
  const prefix = prefixOrThrow(options.prefix)
  const login = loginOrThrow(options)
  const timeoutMs = httpTimeoutOrThrow(options.requestTimeout)
  const client = new EtcdClient(new Endpoints(urls, transportOrThrow(options), clock), login)
  return new EtcdEngine({
    client,
    keys: keysUnder(prefix),
    prefix,
    clock,
    random,
    loggedIn: login !== undefined,
    timeoutMs,
  })
}

function loginOrThrow({ username, password }: EtcdOptions): EtcdLogin | undefined {
  const [user, secret] = [secretOrThrow(username, 'username'), secretOrThrow(password, 'password')]
  if (user === undefined && secret === undefined) return undefined
  if (user === undefined || secret === undefined)
    throw new TypeError(
      `expected username and password together, got ${user === undefined ? 'password' : 'username'} alone; give both, or neither`,
    )
  return { username: user, password: secret }
}

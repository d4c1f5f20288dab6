import { optionsOrThrow } from '../../arguments.ts'
import { clockOrThrow } from '../../clock.ts'
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
import { EtcdClient, type EtcdLogin } from './client.ts'
import { EtcdEngine } from './engine.ts'
import { keysUnder } from './keys.ts'

export type { Fetch, FetchReply, TlsOptions } from '../shared/http/transport.ts'

/** Options of `etcd`. */
export interface EtcdOptions extends HttpOptions {
  /** An etcd user whose role may read and write all keys with the prefix. */
  username?: string
  password?: string
}

const OPTIONS = [...HTTP_OPTIONS, 'username', 'password']

/**
 * Leases on an etcd cluster, 3.4 or newer, through its JSON gateway. Give the client URLs of all members: when one does not
 * answer, the next one is asked.
 */
export function etcd(endpoints: string | readonly string[], options: EtcdOptions = {}): Engine {
  const urls = urlsOrThrow(endpoints, 'endpoints', 'http://127.0.0.1:2379')
  optionsOrThrow(options, OPTIONS)
  const clock = clockOrThrow(options.clock)
  const random = randomOrThrow(options.random)
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

import { objectOrThrow, optionsOrThrow } from '../../arguments.ts'
import { clockOrThrow, type Clock } from '../../clock.ts'
import { durationMs, shown, type Duration } from '../../duration.ts'
import type { Engine } from '../../engine.ts'
import { requestTimeoutOrThrow, type DefaultTimeout } from '../shared/limits.ts'
import { aclOrThrow, clientOrThrow, type ZookeeperClient, type ZookeeperDriver } from './client.ts'
import { ZookeeperEngine } from './engine.ts'
import { SESSION_PER_TTL } from './session-scope.ts'

export type { ZookeeperDriver } from './client.ts'

/** Options of `zookeeper`. */
export interface ZookeeperOptions {
  /** The znode under which all others are made, below the chroot of the connection string. Default `/ringfence`. */
  path?: string
  /**
   * The longest ttl. The session lasts twice as long, and so do the leases of a process that dies. By default servers grant
   * sessions of up to 20 ticks, which is 40 s, hence the default of 20 s here.
   */
  maxTtl?: Duration
  /** Credentials, such as `{ scheme: 'digest', auth: 'user:password' }`. */
  auth?: { readonly scheme: string; readonly auth: string }
  /** Who may change the znodes: clients with the same credentials, or anyone. Default: `creator` if there is `auth`. */
  acl?: 'creator' | 'anyone'
  /** At most this long a server may take to answer before another one is asked. Default: a quarter of the ttl, 100 ms to 2.5 s. */
  requestTimeout?: Duration
  clock?: Clock
}

/**
 * Leases on ZooKeeper. `driver` is the module `node-zookeeper-client`. The engine makes its own clients with it, because a
 * session that has expired needs a new client. `servers` is a connection string: `a:2181,b:2181,c:2181/chroot`.
 */
export function zookeeper(driver: ZookeeperDriver, servers: string, options: ZookeeperOptions = {}): Engine {
  objectOrThrow(driver, 'driver')
  if (typeof driver.createClient !== 'function') {
    throw new TypeError(
      'driver: expected the module node-zookeeper-client, got one without createClient; of `import * as`, give its default',
    )
  }
  optionsOrThrow(options, ['path', 'maxTtl', 'auth', 'acl', 'requestTimeout', 'clock'])
  const { path = '/ringfence', maxTtl = 20_000, auth, requestTimeout } = options
  const { acl = auth === undefined ? 'anyone' : 'creator' } = options
  const credentials = auth === undefined ? undefined : credentialsOrThrow(auth)
  if (acl !== 'creator' && acl !== 'anyone') {
    throw new TypeError(`acl: expected 'creator' or 'anyone', got ${shown(acl)}`)
  }
  if (acl === 'creator' && credentials === undefined) {
    throw new TypeError(
      "acl: expected 'anyone' without auth, got 'creator': the servers do not know who that would be; give auth too",
    )
  }
  const maxTtlMs = durationMs(maxTtl, 'maxTtl', { minMs: 50, maxMs: 86_400_000 })
  const newClient = (): ZookeeperClient => {
    const client = clientOrThrow(
      // No retries by the driver: a creation whose answer was lost would be made twice.
      driver.createClient(servers, { sessionTimeout: SESSION_PER_TTL * maxTtlMs, spinDelay: SPIN_MS, retries: 0 }),
    )
    if (credentials !== undefined) client.addAuthInfo(credentials.scheme, Buffer.from(credentials.auth))
    return client
  }
  return new ZookeeperEngine({
    newClient,
    ...connectionOrThrow(servers),
    root: pathOrThrow(path),
    acl: aclOrThrow(driver, acl),
    maxTtlMs,
    withinMs: requestTimeoutOrThrow(requestTimeout, DEFAULT_TIMEOUT),
    clock: clockOrThrow(options.clock),
  })
}

/** When no server answered, the driver waits for up to this long. Its default of 1 s is too long for a short lease. */
const SPIN_MS = 200
const DEFAULT_PORT = 2181
/** A renewal is due after a third of the ttl, so one can fail and the next can still be made in time. */
const DEFAULT_TIMEOUT: DefaultTimeout = { divisor: 4, leastMs: 100, mostMs: 2500 }

function connectionOrThrow(servers: unknown): { servers: readonly string[]; chroot: string } {
  // A host has no colons: the driver does not know IPv6 addresses.
  const match =
    typeof servers === 'string' ? /^([^/,\s:]+(?::\d+)?(?:,[^/,\s:]+(?::\d+)?)*)(\/\S*[^/\s])?\/?$/.exec(servers) : null
  if (match === null) {
    throw new TypeError(`servers: expected a connection string such as 'a:2181,b:2181/chroot', got ${shown(servers)}`)
  }
  const hosts = match[1]!.split(',')
  return {
    servers: hosts.map((host) => (host.includes(':') ? host : `${host}:${DEFAULT_PORT}`)),
    chroot: match[2] ?? '',
  }
}

function pathOrThrow(path: unknown): string {
  // eslint-disable-next-line no-control-regex -- control characters are what it looks for
  if (typeof path === 'string' && /^(?:\/(?!\.{1,2}(?:\/|$))[^/\u0000-\u001f\u007f-\u009f]+)+$/.test(path)) return path
  throw new TypeError(`path: expected an absolute path such as '/ringfence', got ${shown(path)}`)
}

function credentialsOrThrow(auth: { readonly scheme: unknown; readonly auth: unknown }): {
  scheme: string
  auth: string
} {
  objectOrThrow(auth, 'auth')
  const { scheme, auth: secret } = auth
  if (typeof scheme === 'string' && scheme !== '' && typeof secret === 'string' && secret !== '') {
    return { scheme, auth: secret }
  }
  // The value is never shown: it may be a password.
  throw new TypeError(
    "auth: expected { scheme: 'digest', auth: 'user:password' }, got something else (not shown, as it may be a password)",
  )
}

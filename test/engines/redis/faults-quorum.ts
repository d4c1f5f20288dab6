import { isDeepStrictEqual } from 'node:util'
import { Redis } from 'ioredis'
import type { Duration } from '../../../src/duration.ts'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { redlock, type RedlockOptions } from '../../../src/engines/redis/index.ts'
import type { LocksOptions } from '../../../src/options.ts'
import { startRedisNodes, type RedisOptions, type RedisServer } from '../../../harness/servers/redis.ts'
import { until } from '../../../harness/until.ts'

/** Servers, and locks on all of them as several processes would have them. */
export interface Quorum extends AsyncDisposable {
  readonly nodes: readonly RedisServer[]
  locks(options?: LocksOptions, engineOptions?: EngineOptions, ports?: readonly (number | string)[]): Locks
}

/** Without a `requestTimeout` it is that of the tests; with undefined, the default of the engine. */
type EngineOptions = Omit<RedlockOptions, 'requestTimeout'> & { readonly requestTimeout?: Duration | undefined }

/** A busy machine may keep a healthy server waiting; the tests' claims are not about that. */
const requestTimeout = '2s'

export async function startQuorum(serverOptions: RedisOptions = {}, size = 5): Promise<Quorum> {
  const { nodes, stop } = await startRedisNodes(size, serverOptions)
  const clients: Redis[] = []
  const all: Locks[] = []
  return {
    nodes,
    locks(options = {}, engineOptions = {}, ports = nodes.map(({ port }) => port)) {
      const own = ports.map((port) => connect(port))
      clients.push(...own)
      const merged: EngineOptions = { requestTimeout, ...engineOptions }
      const { requestTimeout: ownTimeout, ...others } = merged
      const timeout = ownTimeout === undefined ? {} : { requestTimeout: ownTimeout }
      const locks = createLocks(redlock(own, { ...timeout, ...others }), options)
      all.push(locks)
      return locks
    },
    async [Symbol.asyncDispose]() {
      for (const locks of all) await locks.close()
      for (const client of clients) client.disconnect()
      await stop()
    },
  }
}

/** By its port, or by an address with a user. */
function connect(port: number | string): Redis {
  const client = typeof port === 'string' ? new Redis(port) : new Redis({ host: '127.0.0.1', port })
  // A server that is away is what these tests are about; ioredis would print it.
  return client.on('error', () => undefined)
}

export async function restartEmpty(node: RedisServer): Promise<void> {
  await node.kill()
  await node.restart({ empty: true })
}

/** Lock keys on a server: all but counters and stamp. */
export async function lockKeys(server: RedisServer): Promise<string[]> {
  const keys = (await server.cli('KEYS', '*')).split('\n')
  return keys.filter((key) => key !== '' && !key.startsWith('ringfence:')).sort()
}

/** Waits until these are the lock keys of each of the servers. The time is less than the usual ttl of 30 s. */
export async function lockKeysBecome(
  servers: readonly RedisServer[],
  keys: readonly string[],
  withinMs = 20_000,
): Promise<void> {
  const expected = servers.map(() => keys)
  const areThese = async (): Promise<boolean> =>
    isDeepStrictEqual(await Promise.all(servers.map((server) => lockKeys(server))), expected)
  await until(areThese, { what: `the lock keys are [${keys.join(', ')}] everywhere`, withinMs, everyMs: 20 })
}

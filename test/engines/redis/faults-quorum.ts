import { Redis } from 'ioredis'
import { createLocks, type Locks } from '../../../src/locks.ts'
import { redlock, type RedlockOptions } from '../../../src/engines/redis/index.ts'
import type { LocksOptions } from '../../../src/options.ts'
import { startRedisNodes, type RedisOptions, type RedisServer } from '../../support/servers/redis.ts'

/** Five servers, and locks on all of them as several processes would have them. */
export interface Quorum extends AsyncDisposable {
  readonly nodes: readonly RedisServer[]
  locks(options?: LocksOptions, engineOptions?: RedlockOptions, ports?: readonly number[]): Locks
}

/** A busy machine may keep a healthy server waiting; the tests' claims are not about that. */
const nodeTimeout = '1s'

export async function startQuorum(serverOptions: RedisOptions = {}): Promise<Quorum> {
  const { nodes, stop } = await startRedisNodes(5, serverOptions)
  const clients: Redis[] = []
  const all: Locks[] = []
  return {
    nodes,
    locks(options = {}, engineOptions = {}, ports = nodes.map(({ port }) => port)) {
      const own = ports.map((port) => connect(port))
      clients.push(...own)
      const locks = createLocks(redlock(own, { nodeTimeout, ...engineOptions }), options)
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

function connect(port: number): Redis {
  // A server that is away is what these tests are about; ioredis would print it.
  return new Redis({ host: '127.0.0.1', port }).on('error', () => undefined)
}

/** Lock keys on a server: all but counters and stamp. */
export async function lockKeys(server: RedisServer): Promise<string[]> {
  const keys = (await server.cli('KEYS', '*')).split('\n')
  return keys.filter((key) => key !== '' && !key.startsWith('ringfence:')).sort()
}

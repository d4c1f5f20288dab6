import { Redis } from 'ioredis'
import { redlock } from '../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { startWorker, type Worker } from '../../harness/child.ts'
import { startRedisNodes, type RedisServer } from '../../harness/servers/redis.ts'

export interface Message {
  readonly type: string
  readonly [field: string]: unknown
}

/** Five servers, processes that use them, and locks of our own. */
export interface Setup extends AsyncDisposable {
  readonly nodes: readonly RedisServer[]
  readonly clients: readonly Redis[]
  readonly locks: Locks
  worker(file: string, driver: string, env?: Record<string, string>): Worker<Message>
}

export async function startSetup(): Promise<Setup> {
  const { nodes, stop } = await startRedisNodes(5)
  const clients = nodes.map(({ host, port }) => new Redis({ host, port }).on('error', () => undefined))
  const locks = createLocks(redlock(clients, { requestTimeout: '1s' }))
  const workers: Worker<Message>[] = []
  return {
    nodes,
    clients,
    locks,
    worker(file, driver, env = {}) {
      const ports = nodes.map(({ port }) => port).join(',')
      const worker = startWorker<Message>(new URL(`./workers/${file}`, import.meta.url), {
        env: { RINGFENCE_PORTS: ports, RINGFENCE_DRIVER: driver, ...env },
      })
      workers.push(worker)
      return worker
    },
    async [Symbol.asyncDispose]() {
      for (const worker of workers) await worker[Symbol.asyncDispose]()
      await locks.close()
      for (const client of clients) client.disconnect()
      await stop()
    },
  }
}

export const isType =
  (type: string) =>
  (message: Message): boolean =>
    message.type === type

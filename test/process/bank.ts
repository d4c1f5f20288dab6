import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { Redis } from 'ioredis'
import { fencedErrors, fencedMiddleware, fencedOf, redisGuard, type Next } from '../../src/guards/index.ts'
import { startWorker, type Worker } from '../../harness/child.ts'
import { startMariadb } from '../../harness/servers/mariadb.ts'
import { startMongodb } from '../../harness/servers/mongodb.ts'
import { startObjects } from '../../harness/servers/objects.ts'
import { startPostgres } from '../../harness/servers/postgres.ts'
import { startRedis } from '../../harness/servers/redis.ts'
import { createFolder, removeFolder } from '../../harness/temporary-folder.ts'
import { isType, type Message } from './setup.ts'

/** Every store that a guard protects, a Redis for the leases, and processes that use them. */
export interface Bank extends AsyncDisposable {
  readonly workers: readonly Worker<Message>[]
}

export async function startBank(processes: number): Promise<Bank> {
  const [leases, redis, postgres, mariadb, mongodb, objects] = await Promise.all([
    startRedis(),
    startRedis(),
    startPostgres({ settings: { max_connections: '60' } }),
    startMariadb(),
    startMongodb({ replicaSet: true }),
    startObjects(),
  ])
  // Ends the transaction of a process that was stopped in it; a minute by default.
  await mongodb.command({ setParameter: 1, transactionLifetimeLimitSeconds: 1 })
  const service = await startService(redis.url)
  const folder = createFolder('bank')
  const { host, port, user, database } = mariadb
  const env = {
    LEASE_PORT: String(leases.port),
    REDIS_URL: redis.url,
    POSTGRES_URL: postgres.url,
    MARIADB: JSON.stringify({ host, port, user, database }),
    MONGODB_URL: mongodb.url,
    OBJECTS_URL: objects.url,
    HTTP_URL: service.url,
    FILE_FOLDER: folder,
  }
  const file = new URL('./workers/incrementer.mjs', import.meta.url)
  const workers = Array.from({ length: processes }, () => startWorker<Message>(file, { env }))
  for (const worker of workers) await worker.next(isType('ready'), { withinMs: 60_000, what: 'sign of life' })
  return {
    workers,
    async [Symbol.asyncDispose]() {
      for (const worker of workers) await worker.kill()
      for (const server of [service, objects]) await server[Symbol.asyncDispose]()
      for (const server of [leases, redis, postgres, mariadb, mongodb]) await server.stop()
      removeFolder(folder)
    },
  }
}

const SECTION = `redis.call('set', KEYS[1], ARGV[1]) redis.call('rpush', KEYS[2], ARGV[2])`

interface Body {
  readonly balance?: number
  readonly token?: string
}

const nameOf = ({ url = '' }: IncomingMessage): string => decodeURIComponent(url.slice(1))

function fail(response: ServerResponse, error: unknown): void {
  response.writeHead(500).end(String(error))
}

/** A service that keeps balances. With a token it is guarded, without one it is as services usually are. */
async function startService(redisUrl: string): Promise<AsyncDisposable & { readonly url: string }> {
  const client = new Redis(redisUrl)
  const guard = redisGuard(client)
  const enter = fencedMiddleware(guard, { resource: nameOf })
  const answerError = fencedErrors()

  const handle = async (request: IncomingMessage, response: ServerResponse, guarded: boolean): Promise<void> => {
    try {
      await serve(request, response, guarded)
    } catch (error) {
      answerError(error, request, response, (error) => fail(response, error))
    }
  }
  const serve = async (request: IncomingMessage, response: ServerResponse, guarded: boolean): Promise<void> => {
    const name = nameOf(request)
    const keys = [`service:${name}:balance`, `service:${name}:tokens`]
    if (request.method === 'GET') {
      const [balance, tokens] = [await client.get(keys[0]!), await client.lrange(keys[1]!, 0, -1)]
      response.end(JSON.stringify({ balance: Number(balance), tokens }))
      return
    }
    const { balance, token } = (await json(request)) as Body
    if (balance !== undefined && token === undefined) await client.set(keys[0]!, balance)
    if (balance !== undefined && token !== undefined) {
      const args = [String(balance), token]
      if (guarded) await guard.run(fencedOf(request), SECTION, { keys, args })
      else await client.eval(SECTION, 2, ...keys, ...args)
    }
    response.writeHead(204).end()
  }

  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    const guarded = request.headers['fencing-token'] !== undefined
    const next: Next = (error) => {
      if (error === undefined) void handle(request, response, guarded)
      else fail(response, error)
    }
    if (guarded) enter(request, response, next)
    else next()
  }
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      client.disconnect()
    },
  }
}

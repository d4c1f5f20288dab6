import { Redis, type RedisOptions } from 'ioredis'
import { Redis as Valkey } from 'iovalkey'
import type { RedisClient } from '../../src/engines/redis/client.ts'
import { ioredis, iovalkey } from '../../src/engines/redis/drivers/ioredis.ts'
import type { Wired, Wiring } from '../client.ts'
import { Book } from './book.ts'
import { SimSocket } from './socket.ts'

/** How users configure it: what happens to commands whose answer was lost, and to those that come while it is not connected. */
const HABITS: readonly RedisOptions[] = [
  {},
  { maxRetriesPerRequest: 0 },
  { maxRetriesPerRequest: null },
  { autoResendUnfulfilledCommands: false },
  { enableOfflineQueue: false },
  { enableAutoPipelining: true },
  { protocol: 2 },
]

export function overIoredis(wiring: Wiring): Wired {
  return over(wiring, (options) => {
    const client = new Redis(options)
    return { client, redis: ioredis(client) }
  })
}

/** A fork of ioredis 5: without RESP3. */
export function overIovalkey(wiring: Wiring): Wired {
  return over(wiring, (options) => {
    const client = new Valkey(options)
    return { client, redis: iovalkey(client) }
  })
}

interface Made {
  readonly client: { on(event: 'error', listener: () => void): unknown }
  readonly redis: RedisClient
}

/** The driver itself, under the shipped code for it, over simulated sockets. */
function over(wiring: Wiring, make: (options: object) => Made): Wired {
  const { server, random } = wiring
  const sockets = new Set<SimSocket>()
  const book = new Book(wiring)
  const waits = random.fork('reconnect')
  class Connector {
    readonly #options: { disconnectTimeout?: number }
    #stream: SimSocket | undefined
    connecting = false
    firstError: Error | undefined

    constructor(options: object) {
      this.#options = options
    }

    check(): boolean {
      return true
    }

    connect(): Promise<SimSocket> {
      this.connecting = true
      return Promise.resolve().then(() => {
        if (!this.connecting) throw new Error('Connection is closed.')
        const socket = new SimSocket(wiring, book)
        sockets.add(socket)
        socket.once('close', () => sockets.delete(socket))
        socket.once('error', (error: Error) => (this.firstError = error))
        this.#stream = socket
        return socket
      })
    }

    disconnect(): void {
      this.connecting = false
      const stream = this.#stream
      if (stream === undefined) return
      // As ioredis's own connector does it.
      const timer = setTimeout(() => stream.destroy(), this.#options.disconnectTimeout)
      stream.on('close', () => clearTimeout(timer))
      stream.end()
    }
  }
  const { client, redis } = make({
    ...random.fork('habits').pick(HABITS),
    host: server.name,
    retryStrategy: () => waits.between(5, 120),
    Connector,
  })
  // As every program must: else ioredis prints each of them.
  client.on('error', () => undefined)
  return {
    redis: book.noting(redis),
    get subscriptions() {
      return [...sockets].filter((socket) => socket.isSubscriber).length
    },
  }
}

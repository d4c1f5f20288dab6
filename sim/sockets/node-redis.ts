import net from 'node:net'
import { createClient, createClientPool } from 'redis'
import { nodeRedis } from '../../src/engines/redis/drivers/node-redis.ts'
import type { Wired, Wiring } from '../client.ts'
import { Book } from './book.ts'
import { SimSocket } from './socket.ts'

/** How users configure it. */
const HABITS: readonly object[] = [
  {},
  { RESP: 2 },
  { disableOfflineQueue: true },
  { pingInterval: 1000 },
  { commandOptions: { timeout: 300 } },
]

/** Options of its sockets reach the function that makes them, also in copies of a client. */
const DIAL = Symbol('makes the socket')

interface Dialling {
  readonly [DIAL]?: () => SimSocket
}

const { createConnection } = net

/** It has no option for another kind of socket: in this process `net.createConnection` makes one, where it is asked for that. */
Object.assign(net, {
  createConnection(...args: unknown[]): unknown {
    const dial = (args[0] as Dialling | undefined)?.[DIAL]
    return dial === undefined ? Reflect.apply(createConnection, net, args) : dial()
  },
})

/** node-redis itself, or a pool of it, under the shipped driver, over simulated sockets. */
export function overNodeRedis(wiring: Wiring): Wired {
  const { server, random } = wiring
  const sockets = new Set<SimSocket>()
  const book = new Book(wiring)
  const waits = random.fork('reconnect')
  const dial = (): SimSocket => {
    const socket = new SimSocket(wiring, book)
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    return socket
  }
  const habits = random.fork('habits').pick(HABITS)
  const options = {
    ...habits,
    // It makes a class with all commands for each client whose options read differently; that takes longer than the run.
    toJSON: () => ('RESP' in habits ? 'RESP2' : 'RESP3'),
    // An address: a name it looks up.
    socket: { host: `10.0.0.${server.name.slice(1)}`, reconnectStrategy: () => waits.between(5, 120), [DIAL]: dial },
  }
  const client =
    wiring.pool === undefined ? createClient(options) : createClientPool(options, { minimum: 2, maximum: wiring.pool })
  // As every program must: else an error ends the process.
  client.on('error', () => undefined)
  // It goes on trying for as long as its strategy says, which is for ever.
  void client.connect()
  return {
    redis: book.noting(nodeRedis(client)),
    get subscriptions() {
      return [...sockets].filter((socket) => socket.isSubscriber).length
    },
  }
}

import { ResilientSubscriber, type ConnectionEvents } from '../src/engines/redis/drivers/subscriber.ts'
import type { SubscriberConnection } from '../src/engines/redis/drivers/subscriber-connection.ts'
import type { Wiring } from './client.ts'
import { Connection, type Request } from './network.ts'

/** The shipped code that keeps subscriptions alive, over simulated connections. */
export class SimSubscriber extends ResilientSubscriber<undefined> {
  readonly #open: Set<SimConnection>

  /** Without `proves`, connections answer for themselves what the server should: as if nobody looked after them. */
  constructor(wiring: Wiring, proves = true) {
    const open = new Set<SimConnection>()
    const connections = {
      serverOf: () => Promise.resolve({ name: '', source: undefined }),
      open: (_source: undefined, events: ConnectionEvents) => new SimConnection(wiring, events, open, proves),
    }
    super(connections, wiring.process, wiring.random.fork('retries'))
    this.#open = open
  }

  get connections(): number {
    return this.#open.size
  }
}

interface Asked {
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

/** A connection attempt that meets a cut path is repeated until it gets through, as TCP does it. */
const KNOCK_MS = 20

/** One connection in subscriber mode, as a driver has it: it knows what its TCP connection knows, and nothing else. */
class SimConnection implements SubscriberConnection {
  readonly ready: Promise<void>
  readonly #wiring: Wiring
  readonly #events: ConnectionEvents
  readonly #open: Set<SimConnection>
  readonly #proves: boolean
  readonly #asked = new Map<Request, Asked>()
  #connection: Connection | undefined
  #isClosed = false

  constructor(wiring: Wiring, events: ConnectionEvents, open: Set<SimConnection>, proves: boolean) {
    this.#wiring = wiring
    this.#events = events
    this.#open = open
    this.#proves = proves
    open.add(this)
    this.ready = new Promise((resolve, reject) => this.#connect({ resolve, reject }))
  }

  subscribe(channel: string): Promise<void> {
    return this.#ask(['SUBSCRIBE', channel])
  }

  unsubscribe(channel: string): Promise<void> {
    return this.#ask(['UNSUBSCRIBE', channel])
  }

  prove(): Promise<void> {
    return this.#proves ? this.#ask(['PING']) : Promise.resolve()
  }

  close(): void {
    this.#isClosed = true
    this.#open.delete(this)
    this.#connection?.close()
    this.#giveUp()
  }

  #connect(asked: Asked): void {
    const { network, process, server, random } = this.#wiring
    const travelMs = 2 * network.travelMs(random)
    network.time.after(travelMs, () =>
      process.enter(() => {
        if (this.#isClosed) return asked.reject(new Error('Connection is closed.'))
        if (network.link(process.name, server.name).isCut) {
          network.time.after(KNOCK_MS, () => process.enter(() => this.#connect(asked)))
          return
        }
        if (!server.isUp) return asked.reject(new Error('connect ECONNREFUSED'))
        this.#connection = new Connection(network, process, server, random, {
          answered: (request) => this.#answered(request),
          pushed: (channel, message) => this.#events.message(channel, message),
          closed: () => this.#lost(),
        })
        this.#connection.isSubscriber = true
        asked.resolve()
      }),
    )
  }

  #ask(command: readonly string[]): Promise<void> {
    const { process, server } = this.#wiring
    const request: Request = { ...this.#wiring.describe([command]), commands: [command] }
    return new Promise((resolve, reject) => {
      if (this.#isClosed || this.#connection === undefined) return reject(new Error('Connection is closed.'))
      if (!process.isAlive) return
      this.#asked.set(request, { resolve, reject })
      this.#wiring.sent(request, server.name, false)
      this.#connection.send(request)
    })
  }

  #answered(request: Request): void {
    this.#wiring.heard(request, this.#wiring.server.name)
    this.#asked.get(request)?.resolve()
    this.#asked.delete(request)
  }

  #lost(): void {
    this.#connection = undefined
    this.#events.down()
    this.#giveUp()
  }

  #giveUp(): void {
    for (const { reject } of this.#asked.values()) reject(new Error('Connection is closed.'))
    this.#asked.clear()
  }
}

import type { RedisClient, RedisMaster, Subscriber } from '../src/engines/redis/client.ts'
import { Connection, type Network, type Request } from './network.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'
import type { Reply } from './redis.ts'
import { isServerError, type Server } from './server.ts'

/** What a driver does with commands whose answer was lost with the connection: sends them again, or fails them. */
export type Driver = 'resend' | 'reject'

export interface Wiring {
  readonly network: Network
  readonly process: Process
  readonly server: Server
  readonly random: Seeded
  readonly driver: Driver
  describe(commands: readonly (readonly string[])[]): Omit<Request, 'commands'>
  sent(request: Request, server: string, again: boolean): void
  heard(request: Request, server: string): void
  dropped(request: Request, server: string): void
}

interface Pending {
  readonly request: Request
  readonly resolve: (replies: readonly Reply[]) => void
  readonly reject: (error: Error) => void
  wasSent: boolean
}

/** Drivers wait a little before they connect again. */
const RECONNECT_MS = { least: 5, most: 120 }

/**
 * The simulated driver, in place of the user's own client: one connection, commands answered in order, an offline queue
 * while it is down. It keeps commands for as long as it takes, as drivers do, so some run very late.
 */
export class SimClient implements RedisClient {
  readonly driver = 'ioredis'
  readonly identity = this
  readonly label: string
  readonly cluster = false
  readonly #wiring: Wiring
  readonly #line: Line
  readonly subscribers: SimSubscriber[] = []

  constructor(wiring: Wiring) {
    this.#wiring = wiring
    this.label = wiring.server.name
    this.#line = new Line(wiring)
  }

  unusable(): undefined {
    return undefined
  }

  async run(command: readonly string[]): Promise<unknown> {
    const [reply] = await this.#line.send([command])
    if (reply !== undefined && isServerError(reply)) throw reply
    return reply
  }

  async runTogether(commands: readonly (readonly string[])[]): Promise<readonly unknown[]> {
    const replies = await this.#line.send(commands)
    const error = replies.find(isServerError)
    if (error !== undefined) throw error
    return replies
  }

  async masters(): Promise<readonly RedisMaster[]> {
    return [{ label: this.label, run: (command) => this.run(command) }]
  }

  subscriber(): Subscriber {
    const subscriber = new SimSubscriber({ ...this.#wiring, random: this.#wiring.random.fork('subscriber') })
    this.subscribers.push(subscriber)
    return subscriber
  }

  get pending(): number {
    return this.#line.pending
  }
}

/** A connection that comes back by itself. */
class Line {
  onBack: () => void = () => undefined
  onPush: (channel: string, message: string) => void = () => undefined
  readonly #wiring: Wiring
  #connection: Connection | undefined
  #pending: Pending[] = []
  #wasOpen = false
  #isClosed = false

  constructor(wiring: Wiring) {
    this.#wiring = wiring
    this.#connect()
  }

  get pending(): number {
    return this.#pending.length
  }

  send(commands: readonly (readonly string[])[]): Promise<readonly Reply[]> {
    const request: Request = { ...this.#wiring.describe(commands), commands }
    return new Promise((resolve, reject) => {
      if (this.#isClosed) return reject(new Error('Connection is closed.'))
      const pending: Pending = { request, resolve, reject, wasSent: false }
      this.#pending.push(pending)
      if (this.#connection !== undefined) this.#write(pending)
    })
  }

  close(): void {
    this.#isClosed = true
    this.#connection?.close()
    this.#connection = undefined
    for (const { reject } of this.#pending.splice(0)) reject(new Error('Connection is closed.'))
  }

  #write(pending: Pending): void {
    const { process, server } = this.#wiring
    if (!process.isAlive) return
    this.#wiring.sent(pending.request, server.name, pending.wasSent)
    pending.wasSent = true
    this.#connection!.send(pending.request)
  }

  #connect(): void {
    const { network, process, server, random } = this.#wiring
    const link = network.link(process.name, server.name)
    if (this.#isClosed || !process.isAlive) return
    if (!server.isUp || link.isCut) return this.#connectLater()
    this.#connection = new Connection(network, process, server, random, {
      answered: (request, replies) => this.#answered(request, replies),
      pushed: (channel, message) => this.onPush(channel, message),
      closed: () => this.#lost(),
    })
    for (const pending of this.#pending) this.#write(pending)
    if (this.#wasOpen) this.onBack()
    this.#wasOpen = true
  }

  #connectLater(): void {
    const { network, process, random } = this.#wiring
    const inMs = random.between(RECONNECT_MS.least, RECONNECT_MS.most)
    network.time.after(inMs, () => process.enter(() => this.#connect(), 'timer'))
  }

  #answered(request: Request, replies: readonly Reply[]): void {
    const index = this.#pending.findIndex((pending) => pending.request === request)
    const [pending] = this.#pending.splice(index, 1)
    this.#wiring.heard(request, this.#wiring.server.name)
    pending!.resolve(replies)
  }

  #lost(): void {
    this.#connection = undefined
    if (this.#wiring.driver === 'reject') {
      const given = this.#pending.filter(({ wasSent }) => wasSent)
      this.#pending = this.#pending.filter(({ wasSent }) => !wasSent)
      for (const { request, reject } of given) {
        this.#wiring.dropped(request, this.#wiring.server.name)
        reject(new Error('Connection was lost before the answer came'))
      }
    }
    this.#connectLater()
  }
}

/** A second connection, for messages. */
export class SimSubscriber implements Subscriber {
  readonly #line: Line
  readonly #listeners = new Map<string, (message: string) => void>()
  #gap: () => void = () => undefined
  isClosed = false

  constructor(wiring: Wiring) {
    // Subscriptions are made anew by the subscriber itself after a reconnect.
    this.#line = new Line({ ...wiring, driver: 'resend' })
    this.#line.onPush = (channel, message) => this.#listeners.get(channel)?.(message)
    this.#line.onBack = () => {
      const channels = [...this.#listeners.keys()]
      void Promise.all(channels.map((channel) => this.#line.send([['SUBSCRIBE', channel]]))).then(
        () => this.#gap(),
        () => undefined,
      )
    }
  }

  get channels(): number {
    return this.isClosed ? 0 : this.#listeners.size
  }

  async subscribe(channel: string, onMessage: (message: string) => void): Promise<void> {
    this.#listeners.set(channel, onMessage)
    await this.#line.send([['SUBSCRIBE', channel]])
  }

  async unsubscribe(channel: string): Promise<void> {
    this.#listeners.delete(channel)
    await this.#line.send([['UNSUBSCRIBE', channel]])
  }

  onGap(callback: () => void): void {
    this.#gap = callback
  }

  async close(): Promise<void> {
    this.isClosed = true
    this.#line.close()
  }
}

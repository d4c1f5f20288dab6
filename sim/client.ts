import type { RedisClient, RedisMaster, Subscriber } from '../src/engines/redis/client.ts'
import { Connection, type Network, type Request } from './network.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'
import type { Reply } from './redis.ts'
import { isServerError, type Server } from './server.ts'
import { SimSubscriber } from './subscriber.ts'

/** What a driver does with commands whose answer was lost with the connection: sends them again, or fails them. */
export type Driver = 'resend' | 'reject'

export interface Wiring {
  readonly network: Network
  readonly process: Process
  readonly server: Server
  readonly random: Seeded
  readonly driver: Driver
  /** How many connections it spreads its commands over: on several they overtake one another. Default one. */
  readonly pool?: number
  describe(commands: readonly (readonly string[])[]): Omit<Request, 'commands'>
  sent(request: Request, server: string, again: boolean): void
  heard(request: Request, server: string): void
  dropped(request: Request, server: string): void
  /** It is handed to a driver that may send it later, or never. */
  issued?(request: Request, server: string): void
}

/** A client of one server in one process, and how many subscriber connections it has open. */
export interface Wired {
  readonly redis: RedisClient
  readonly subscriptions: number
}

export type Wire = (wiring: Wiring) => Wired

interface Pending {
  readonly request: Request
  readonly resolve: (replies: readonly Reply[]) => void
  readonly reject: (error: Error) => void
  wasSent: boolean
}

/** Drivers wait a little before they connect again. */
const RECONNECT_MS = { least: 5, most: 120 }

/**
 * The simulated driver, in place of the user's own client: one connection or a pool of them, commands of each answered in
 * order, an offline queue while it is down. It keeps commands for as long as it takes, as drivers do, so some run very late.
 */
export class SimClient implements RedisClient, Wired {
  readonly redis = this
  readonly driver = 'ioredis'
  readonly identity = this
  readonly label: string
  readonly cluster = false
  readonly #wiring: Wiring
  readonly #lines: readonly Line[]
  readonly #choice: Seeded
  readonly #subscribers: SimSubscriber[] = []

  constructor(wiring: Wiring) {
    this.#wiring = wiring
    this.label = wiring.server.name
    this.#choice = wiring.random.fork('choice')
    this.#lines = Array.from(
      { length: wiring.pool ?? 1 },
      (_, index) => new Line(index === 0 ? wiring : { ...wiring, random: wiring.random.fork(`connection ${index}`) }),
    )
  }

  unusable(): undefined {
    return undefined
  }

  async run(command: readonly string[]): Promise<unknown> {
    const [reply] = await this.#choice.pick(this.#lines).send([command])
    if (reply !== undefined && isServerError(reply)) throw reply
    return reply
  }

  async runTogether(commands: readonly (readonly string[])[]): Promise<readonly unknown[]> {
    const replies = await this.#choice.pick(this.#lines).send(commands)
    const error = replies.find(isServerError)
    if (error !== undefined) throw error
    return replies
  }

  async masters(): Promise<readonly RedisMaster[]> {
    return [{ label: this.label, run: (command) => this.run(command) }]
  }

  subscriber(): Subscriber {
    const subscriber = new SimSubscriber({ ...this.#wiring, random: this.#wiring.random.fork('subscriber') })
    this.#subscribers.push(subscriber)
    return subscriber
  }

  get subscriptions(): number {
    return this.#subscribers.reduce((sum, { connections }) => sum + connections, 0)
  }

  get pending(): number {
    return this.#lines.reduce((sum, { pending }) => sum + pending, 0)
  }
}

/** A connection that comes back by itself. */
class Line {
  readonly #wiring: Wiring
  #connection: Connection | undefined
  #pending: Pending[] = []

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
      const pending: Pending = { request, resolve, reject, wasSent: false }
      this.#pending.push(pending)
      if (this.#connection !== undefined) this.#write(pending)
    })
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
    if (!process.isAlive) return
    if (!server.isUp || link.isCut) return this.#connectLater()
    this.#connection = new Connection(network, process, server, random, {
      answered: (request, replies) => this.#answered(request, replies),
      pushed: () => undefined,
      closed: () => this.#lost(),
    })
    for (const pending of this.#pending) this.#write(pending)
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

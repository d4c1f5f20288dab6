import type { Time } from './clock.ts'
import type { Process } from './process.ts'
import type { Seeded } from './random.ts'
import type { Reply } from './redis.ts'
import type { Server } from './server.ts'

/** A command in words: which step of the protocol it is, and whose. */
export interface StepInWords {
  readonly id: number
  readonly what: string
  readonly owner: string
  readonly former: string
}

/** Commands that go out back to back on one connection, and are answered together. */
export interface Request {
  readonly commands: readonly (readonly string[])[]
  /** One, or those of a call of several. */
  readonly steps: readonly StepInWords[]
}

/** The path between one process and one server, as it is now. */
export class Link {
  /** Directions that are cut: what is sent waits for the path to heal, as TCP has it. */
  cutTo = 0
  cutFrom = 0
  delayMs = 0
  loseRequest = 0
  loseReply = 0
  readonly connections = new Set<Connection>()

  get isCut(): boolean {
    return this.cutTo > 0 || this.cutFrom > 0
  }

  /** Held messages go on, or the connections turn out to be dead. */
  heal(reset: boolean): void {
    for (const connection of this.connections) {
      if (reset) connection.reset(0)
      else connection.flush()
    }
  }
}

export interface Latency {
  readonly baseMs: number
  readonly jitterMs: number
}

export class Network {
  readonly time: Time
  readonly latency: Latency
  readonly #links = new Map<string, Link>()

  constructor(time: Time, latency: Latency) {
    this.time = time
    this.latency = latency
  }

  link(process: string, server: string): Link {
    // By machine: a process that was started again is behind the same wires.
    const name = `${process.split('.')[0]}-${server}`
    let link = this.#links.get(name)
    if (link === undefined) {
      link = new Link()
      this.#links.set(name, link)
    }
    return link
  }

  travelMs(random: Seeded): number {
    const { baseMs, jitterMs } = this.latency
    const slow = random.fraction()
    // Mostly quick, seldom ten times as slow: an even spread would hardly ever change an order.
    return baseMs + jitterMs * (slow > 0.95 ? 10 * random.fraction() : slow)
  }
}

export interface ConnectionEnd {
  answered(request: Request, replies: readonly Reply[]): void
  pushed(channel: string, message: string): void
  closed(): void
}

interface InFlight {
  readonly request: Request
  isLost: boolean
  atMs: number
}

/** One TCP connection: keeps the order, in each direction, of what it delivers at all. */
export class Connection {
  readonly process: Process
  readonly server: Server
  readonly channels = new Set<string>()
  isSubscriber = false
  /** Its user gives it up by itself when it has been silent for long. */
  endsSilence = false
  /** Directions in which nothing arrives any more, and nobody is told: a firewall has forgotten it. */
  readonly #forgotten = { to: false, from: false }
  readonly #network: Network
  readonly #link: Link
  readonly #random: Seeded
  readonly #end: ConnectionEnd
  #isOpen = true
  #toServerMs = 0
  #toClientMs = 0
  #inFlight: InFlight[] = []
  #heldTo: InFlight[] = []
  #heldFrom: (() => void)[] = []

  constructor(network: Network, process: Process, server: Server, random: Seeded, end: ConnectionEnd) {
    this.#network = network
    this.process = process
    this.server = server
    this.#random = random
    this.#end = end
    this.#link = network.link(process.name, server.name)
    this.#link.connections.add(this)
    server.opened(this)
  }

  send(request: Request): void {
    const leavesMs = this.process.leave()
    if (this.#forgotten.to) return
    this.#toServerMs = Math.max(this.#toServerMs, leavesMs + this.#travelMs())
    const message: InFlight = { request, isLost: false, atMs: this.#toServerMs }
    this.#inFlight.push(message)
    if (this.#random.chance(this.#link.loseRequest)) {
      message.isLost = true
      this.#network.time.at(this.#toServerMs, () => this.reset(0))
      return
    }
    this.#network.time.at(message.atMs, () => this.#arrive(message))
  }

  answer(request: Request, replies: readonly Reply[]): void {
    if (!this.#isOpen || this.#forgotten.from) return
    if (this.#random.chance(this.#link.loseReply)) {
      this.reset(0)
      return
    }
    this.#toClient(() => this.#end.answered(request, replies))
  }

  push(channel: string, message: string): void {
    if (this.#isOpen && !this.#forgotten.from) this.#toClient(() => this.#end.pushed(channel, message))
  }

  /** The connection breaks. Of what is on its way, the given number of messages still arrives, this much later; no answer does. */
  reset(arriving: number, lateMs = 0): void {
    if (!this.#isOpen) return
    this.#shut()
    for (const [index, message] of this.#inFlight.entries()) {
      if (index >= arriving) message.isLost = true
      else message.atMs += lateMs
    }
    const { time } = this.#network
    for (const message of this.#heldTo.splice(0)) time.at(message.atMs, () => this.#arrive(message))
    if (this.#forgotten.from) return
    time.after(this.#travelMs(), () => this.process.enter(() => this.#end.closed()))
  }

  /** It falls silent, for good. */
  forget(way: 'both' | 'to' | 'from'): void {
    this.#forgotten.to ||= way !== 'from'
    this.#forgotten.from ||= way !== 'to'
  }

  /** The client ends it. */
  close(): void {
    this.#shut()
  }

  /** The path is open again. */
  flush(): void {
    if (this.#link.cutTo === 0) for (const message of this.#heldTo.splice(0)) this.#arrive(message)
    if (this.#link.cutFrom > 0) return
    for (const deliver of this.#heldFrom.splice(0)) this.process.enter(() => (this.#isOpen ? deliver() : undefined))
  }

  get isForgotten(): boolean {
    return this.#forgotten.to || this.#forgotten.from
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  #shut(): void {
    this.#isOpen = false
    this.#link.connections.delete(this)
    this.server.closed(this)
    this.#heldFrom = []
  }

  #arrive(message: InFlight): void {
    if (message.isLost) return
    if (message.atMs > this.#network.time.nowMs) {
      this.#network.time.at(message.atMs, () => this.#arrive(message))
      return
    }
    // What was on its way when the connection broke is not stopped by a cut any more: it is in the server's buffers.
    if (this.#isOpen && (this.#link.cutTo > 0 || this.#heldTo.length > 0)) {
      this.#heldTo.push(message)
      return
    }
    this.#inFlight = this.#inFlight.filter((other) => other !== message)
    this.server.receive(this, message.request)
  }

  #toClient(deliver: () => void): void {
    const { time } = this.#network
    this.#toClientMs = Math.max(this.#toClientMs, time.nowMs + this.#travelMs())
    time.at(this.#toClientMs, () => {
      if (!this.#isOpen) return
      if (this.#link.cutFrom > 0 || this.#heldFrom.length > 0) this.#heldFrom.push(deliver)
      else this.process.enter(() => (this.#isOpen ? deliver() : undefined))
    })
  }

  #travelMs(): number {
    return this.#network.travelMs(this.#random) + this.#link.delayMs
  }
}

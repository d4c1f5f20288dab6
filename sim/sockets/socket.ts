import { Duplex } from 'node:stream'
import type { Wiring } from '../client.ts'
import { Connection, type Request } from '../network.ts'
import type { Seeded } from '../random.ts'
import type { Reply } from '../redis.ts'
import { CommandReader, encodeReply, Push } from './resp.ts'

/** An attempt that meets a cut path is repeated until it gets through, as TCP does it. */
const KNOCK_MS = 20

/** How long a system waits for an acknowledgement: shorter than in real life, so that it gives up within a run. */
const TCP_MS = 1500

/** What a socket tells of the commands that go over it. */
export interface Wiretap {
  /** A command leaves: which request that is. */
  sent(commands: readonly (readonly string[])[]): Request
  heard(request: Request): void
  /** It will not be answered on this connection. */
  lost(request: Request): void
}

interface Asked {
  readonly request: Request
  replies: readonly Reply[] | undefined
}

/** Bytes that have come so far as this machine, and whose the last of them is. */
interface Piece {
  readonly bytes: Buffer
  readonly last: Request | undefined
  /** How long it is behind the piece before it. */
  readonly behindMs: number
}

/** Which part of what arrives comes in pieces, how many these are at most, and how far apart: packets of one answer. */
const PIECES = { part: 0.3, most: 4, apartMs: 3 }

/** A TCP socket to a simulated server, as far as drivers use one: bytes in both directions, in any pieces. */
export class SimSocket extends Duplex {
  connecting = true
  readonly #wiring: Wiring
  readonly #tap: Wiretap
  readonly #reader = new CommandReader()
  #asked: Asked[] = []
  readonly #cuts: Seeded
  #pieces: Piece[] = []
  #connection: Connection | undefined
  #protocol: 2 | 3 = 2
  #idle = 0

  constructor(wiring: Wiring, tap: Wiretap) {
    super({ autoDestroy: true, emitClose: true })
    this.#wiring = wiring
    this.#tap = tap
    this.#cuts = wiring.random.fork('pieces')
    this.#connect()
  }

  get isSubscriber(): boolean {
    return this.#connection?.isSubscriber === true && !this.destroyed
  }

  setNoDelay(): this {
    return this
  }

  setKeepAlive(): this {
    return this
  }

  ref(): this {
    return this
  }

  unref(): this {
    return this
  }

  /** Of an idle socket; drivers use it while they connect. */
  setTimeout(ms: number, callback?: () => void): this {
    const idle = ++this.#idle
    if (callback !== undefined) this.once('timeout', callback)
    const { network, process } = this.#wiring
    if (ms > 0) network.time.after(ms, () => process.enter(() => idle === this.#idle && this.emit('timeout'), 'timer'))
    return this
  }

  #connect(): void {
    const { network, process, server, random } = this.#wiring
    network.time.after(2 * network.travelMs(random), () =>
      process.enter(() => {
        if (this.destroyed) return
        if (network.link(process.name, server.name).isCut) {
          network.time.after(KNOCK_MS, () => process.enter(() => this.#connect()))
          return
        }
        if (!server.isUp) {
          this.destroy(Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }))
          return
        }
        this.#connection = new Connection(network, process, server, random, {
          answered: (request, replies) => this.#answered(request, replies),
          pushed: (channel, message) => this.#arrive(this.#encoded(new Push(['message', channel, message]))),
          closed: () => void this.destroy(Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })),
        })
        this.#connection.endsSilence = true
        this.connecting = false
        this.emit('connect')
      }),
    )
  }

  override _read(): void {
    // What arrives is pushed.
  }

  override _write(chunk: Buffer | string, encoding: BufferEncoding, done: () => void): void {
    this.#send(typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk)
    done()
  }

  override _writev(chunks: { chunk: Buffer | string; encoding: BufferEncoding }[], done: () => void): void {
    const all = chunks.map(({ chunk, encoding }) => (typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk))
    this.#send(Buffer.concat(all))
    done()
  }

  override _final(done: () => void): void {
    this.push(null)
    done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#idle++
    this.#connection?.close()
    const halves = this.#pieces.splice(0).flatMap(({ last = [] }) => last)
    for (const request of [...halves, ...this.#asked.splice(0).map((one) => one.request)]) this.#tap.lost(request)
    done(error)
  }

  #send(bytes: Buffer): void {
    if (!this.#wiring.process.isAlive) return
    const groups: string[][][] = []
    for (const [name = '', ...args] of this.#reader.read(bytes)) {
      const command = [name.toUpperCase(), ...args]
      // It waits for what was written right before it, on this connection.
      if (command[0] === 'WAIT' && groups.length > 0) groups.at(-1)!.push(command)
      else groups.push([command])
    }
    for (const commands of groups) {
      const request = this.#tap.sent(commands)
      if (commands[0]![0] === 'SUBSCRIBE') this.#connection!.isSubscriber = true
      this.#asked.push({ request, replies: undefined })
      this.#connection!.send(forServer(request))
      this.#timeOut(request)
    }
  }

  /** The system gives a connection up on which nothing is acknowledged. */
  #timeOut(request: Request): void {
    const { network, process } = this.#wiring
    network.time.after(TCP_MS, () =>
      process.enter(() => {
        if (this.#connection!.isForgotten && this.#asked.some((one) => one.request === request))
          this.destroy(Object.assign(new Error('read ETIMEDOUT'), { code: 'ETIMEDOUT' }))
      }),
    )
  }

  /** In the order in which they were asked, whatever the server had ready first. */
  #answered(request: Request, replies: readonly Reply[]): void {
    const asked = this.#asked.find((one) => forServer(one.request) === request)
    if (asked === undefined) return
    asked.replies = replies
    while (this.#asked[0]?.replies !== undefined) {
      const first = this.#asked.shift()!
      const text = first.request.commands.map((command, at) => this.#reply(command, first.replies![at]!)).join('')
      this.#arrive(text, first.request)
    }
  }

  /** Behind what has come before it, whole or cut anywhere. */
  #arrive(text: string, request?: Request): void {
    const bytes = Buffer.from(text)
    const cuts = this.#cuts
    const count = cuts.chance(PIECES.part) ? cuts.int(2, PIECES.most) : 1
    const inner = Array.from({ length: count - 1 }, () => cuts.int(1, bytes.length - 1))
    const places = [0, ...new Set(inner.sort((a, b) => a - b)), bytes.length]
    const isIdle = this.#pieces.length === 0
    for (const [index, end] of places.slice(1).entries()) {
      const behindMs = index > 0 && cuts.chance(0.5) ? cuts.between(0, PIECES.apartMs) : 0
      const last = index === places.length - 2 ? request : undefined
      this.#pieces.push({ bytes: bytes.subarray(places[index], end), last, behindMs })
    }
    if (isIdle) this.#read()
  }

  #read(): void {
    for (let piece = this.#pieces[0]; piece !== undefined; piece = this.#pieces[0]) {
      if (piece.behindMs > 0) return this.#readLater(piece)
      this.#pieces.shift()
      if (piece.last !== undefined) this.#tap.heard(piece.last)
      this.push(piece.bytes)
    }
  }

  #readLater(piece: Piece): void {
    const { network, process } = this.#wiring
    network.time.after(piece.behindMs, () =>
      process.enter(() => {
        if (this.#pieces[0] !== piece) return
        this.#pieces[0] = { ...piece, behindMs: 0 }
        this.#read()
      }),
    )
  }

  #reply(command: readonly string[], reply: Reply): string {
    const [name = '', first = ''] = command
    switch (name) {
      case 'HELLO':
        this.#protocol = first === '3' ? 3 : 2
        return this.#encoded(['server', 'redis', 'proto', this.#protocol])
      case 'SUBSCRIBE':
      case 'UNSUBSCRIBE':
        return this.#encoded(new Push([name.toLowerCase(), first, this.#connection?.channels.size ?? 0]))
      case 'PING':
        return this.isSubscriber && this.#protocol === 2 ? this.#encoded(['pong', '']) : '+PONG\r\n'
      default:
        return this.#encoded(isGreeting(command) ? GREETINGS[name]! : reply)
    }
  }

  #encoded(reply: Reply | Push): string {
    return encodeReply(reply, this.#protocol)
  }
}

/** What a driver says and asks when it connects. The server is not modelled as far as that: it answers as if to a PING. */
const GREETINGS: Record<string, Reply> = { HELLO: 'OK', CLIENT: 'OK', SELECT: 'OK', INFO: 'loading:0\r\n' }

export function isGreeting([name = '', section]: readonly string[]): boolean {
  return name in GREETINGS && !(name === 'INFO' && section !== undefined)
}

const forServers = new WeakMap<Request, Request>()

function forServer(request: Request): Request {
  const { commands } = request
  if (!isGreeting(commands[0]!)) return request
  let other = forServers.get(request)
  if (other === undefined) {
    other = { ...request, commands: [['PING']] }
    forServers.set(request, other)
  }
  return other
}

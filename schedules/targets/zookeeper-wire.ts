import { EventEmitter, once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { Timer } from '../../src/clock.ts'
import type { Process } from '../../sim/process.ts'
import type { Connection } from '../connection.ts'

/** The protocol's own numbers of its requests. */
export const TYPE = {
  create: 1,
  delete: 2,
  getData: 4,
  setData: 5,
  ping: 11,
  children: 12,
  multi: 14,
  setWatches: 101,
  close: -11,
}

/** A frame is its length, a header, and what its type has. The first one is a greeting, which has no header. */
export const AT = {
  xid: 4,
  type: 8,
  payload: 12,
  greeting: { timeout: 16, session: 20, password: 32 },
  welcome: { timeout: 8, session: 12, password: 24 },
  reply: { error: 16, payload: 20 },
}

const SESSION_BYTES = 8
const PASSWORD_BYTES = 16
/** Of a notice, which answers nothing. */
const NOTICE_XID = -1
const PING = frame(-2, TYPE.ping)
const CLOSE = frame(0, TYPE.close)

/** A request that has nothing but a header. */
function frame(xid: number, type: number): Buffer {
  const bytes = Buffer.alloc(AT.payload)
  bytes.writeInt32BE(bytes.length - 4)
  bytes.writeInt32BE(xid, AT.xid)
  bytes.writeInt32BE(type, AT.type)
  return bytes
}

/** Reads the numbers and texts of a frame, one after the other. */
export class FrameReader {
  readonly #bytes: Buffer
  at: number

  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes
    this.at = at
  }

  int(): number {
    this.at += 4
    return this.#bytes.readInt32BE(this.at - 4)
  }

  text(): string {
    const length = Math.max(this.int(), 0)
    this.at += length
    return this.#bytes.toString('utf8', this.at - length, this.at)
  }
}

/** An operation of a transaction, or the only one of a request; `endAt` is where its bytes end. */
interface Operation {
  readonly type: number
  readonly path: string
  readonly endAt: number
}

/** What a request writes. */
export function operationsOf(request: Buffer): readonly Operation[] {
  const type = request.readInt32BE(AT.type)
  const reader = new FrameReader(request, AT.payload)
  if (type === TYPE.delete || type === TYPE.setData) return [operation(type, reader)]
  if (type !== TYPE.multi) return []
  const operations: Operation[] = []
  for (;;) {
    const next = reader.int()
    // Whether that was all, and an error.
    reader.at += 5
    if (next < 0) return operations
    operations.push(operation(next, reader))
  }
}

function operation(type: number, reader: FrameReader): Operation {
  const path = reader.text()
  if (type === TYPE.create || type === TYPE.setData) reader.text()
  if (type === TYPE.create) {
    for (let rules = reader.int(); rules > 0; rules--) {
      reader.int()
      reader.text()
      reader.text()
    }
  }
  // The version, or the kind of znode.
  reader.int()
  return { type, path, endAt: reader.at }
}

/** Whether all of it was done. A transaction that failed is answered by an error for each of its operations. */
export function isDone(request: Buffer, answer: Buffer): boolean {
  if (answer.readInt32BE(AT.reply.error) !== 0) return false
  return request.readInt32BE(AT.type) !== TYPE.multi || answer.readInt32BE(AT.reply.payload) >= 0
}

/** A connection to the real server, in real time. */
export class Wire {
  readonly #socket: Socket
  #rest = Buffer.alloc(0)
  #waiting: ((answer: Buffer | undefined) => void)[] = []
  #isClosed = false
  /** The server tells of a znode that is watched. */
  onNotice: (notice: Buffer) => void = () => undefined
  /** Whether there may be notices. */
  watches = false

  private constructor(socket: Socket) {
    this.#socket = socket
    socket.setNoDelay()
    socket.on('data', (bytes) => this.#read(bytes))
    // What follows is its close.
    socket.on('error', () => undefined)
    socket.on('close', () => {
      this.#isClosed = true
      for (const answered of this.#waiting.splice(0)) answered(undefined)
    })
  }

  static async open(port: number): Promise<Wire> {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    return new Wire(socket)
  }

  /** Answers come in the order of requests. Undefined: the server has closed the connection. */
  ask(request: Buffer): Promise<Buffer | undefined> {
    if (this.#isClosed) return Promise.resolve(undefined)
    this.#socket.write(request)
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  /** After this it has told of all that was done before. */
  async hear(): Promise<void> {
    if (this.watches) await this.ask(PING)
  }

  /** Closes a session. */
  static async close(port: number, session: Buffer, password: Buffer): Promise<void> {
    const greeting = Buffer.alloc(AT.greeting.password + PASSWORD_BYTES)
    greeting.writeInt32BE(greeting.length - 4)
    session.copy(greeting, AT.greeting.session)
    greeting.writeInt32BE(PASSWORD_BYTES, AT.greeting.password - 4)
    password.copy(greeting, AT.greeting.password)
    const wire = await Wire.open(port)
    const welcome = await wire.ask(greeting)
    if (welcome !== undefined && welcome.readInt32BE(AT.welcome.timeout) > 0) await wire.ask(CLOSE)
    wire.end()
  }

  end(): void {
    this.#socket.destroy()
  }

  #read(bytes: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, bytes])
    while (this.#rest.length >= 4 && this.#rest.length >= 4 + this.#rest.readInt32BE()) {
      const length = 4 + this.#rest.readInt32BE()
      const one = this.#rest.subarray(0, length)
      this.#rest = this.#rest.subarray(length)
      if (one.readInt32BE(AT.xid) === NOTICE_XID) this.onNotice(one)
      else this.#waiting.shift()?.(one)
    }
  }
}

/** Which session a greeting asks for, or a welcome gives. */
export function sessionIn(bytes: Buffer, kind: 'greeting' | 'welcome'): { session: Buffer; password: Buffer } {
  const { session, password } = AT[kind]
  return {
    session: bytes.subarray(session, session + SESSION_BYTES),
    password: bytes.subarray(password, password + PASSWORD_BYTES),
  }
}

/** How long connecting takes: what is lost of it is drawn for the greeting. */
const CONNECT_MS = 1

/** What the driver uses of a socket, over a connection that is carried. */
export class CarriedSocket extends EventEmitter {
  readonly #connection: Connection<Buffer, Buffer>
  readonly #process: Process
  #idle: { readonly ms: number; readonly callback: () => void; readonly timer: Timer } | undefined
  #isDestroyed = false

  constructor(connection: Connection<Buffer, Buffer>, process: Process) {
    super()
    this.#connection = connection
    this.#process = process
    connection.onClosed = () => this.destroy()
    process.timer(() => this.#isDestroyed || this.emit('connect'), CONNECT_MS)
  }

  setNoDelay(): void {
    // Nothing is gathered here.
  }

  setTimeout(ms: number, callback: () => void): void {
    this.#idle?.timer.cancel()
    this.#idle = { ms, callback, timer: this.#process.timer(callback, ms) }
  }

  write(request: Buffer): boolean {
    this.#busy()
    this.#connection.send(request, (answer) => this.receive(answer))
    return true
  }

  receive(bytes: Buffer): void {
    this.#busy()
    this.emit('data', bytes)
  }

  destroy(error?: Error): void {
    if (this.#isDestroyed) return
    this.#isDestroyed = true
    this.#idle?.timer.cancel()
    this.#idle = undefined
    this.#connection.end()
    // As sockets do it: not within the call.
    queueMicrotask(() => {
      if (error !== undefined) this.emit('error', error)
      this.emit('close', error !== undefined)
    })
  }

  #busy(): void {
    if (this.#idle !== undefined) this.setTimeout(this.#idle.ms, this.#idle.callback)
  }
}
